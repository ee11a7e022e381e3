"""Jobs on a real Slurm cluster, through the whole stack: what became of them is what is told."""

import os
import signal
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from shared.client.views import JobView
from tests.slurm import jobs
from tests.slurm.stacks import SlurmStack, accounted_gpu_seconds


def end_of(job: JobView) -> tuple[str, str | None, int | None, int | None]:
    """How it ended, and why."""
    return (job.state, job.end_reason, job.exit.code, job.exit.signal)


def is_metered(hpc: SlurmStack, job: JobView) -> bool:
    """Whether its GPU time comes to accounting's, to the second: what is told after the end may correct it."""
    assert job.backend.ref is not None
    accounted = accounted_gpu_seconds(hpc.cluster, job.backend.ref)
    hpc.until(job.id, lambda one: float(one.gpu_seconds) == accounted, f"{accounted} GPU seconds of {job.id}")
    return True


def test_a_job_runs_on_the_cluster_and_its_outputs_come_back(hpc: SlurmStack, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.sh").write_text("echo learned on $CUDA_VISIBLE_DEVICES; mkdir model; echo so >model/a; sleep 1\n")
    shown = hpc.stack.submit("--coretype", "gpu", "--gpus", "2", "--out", "model/**", "--", "sh", "run.sh", cwd=project)
    assert shown["state"] == "SUCCEEDED", shown["message"]
    job = hpc.client.job(shown["id"])
    assert [stage.status for stage in job.stages] == ["passed"] * 5
    assert (job.backend.name, job.backend.cluster, job.backend.raw_state) == ("slurm", "hpc", "COMPLETED")
    assert hpc.log(job.id) == "learned on 0,1\n"
    assert hpc.stack.cli("outputs", "get", job.id, "--to", str(tmp_path)).code == 0
    assert (tmp_path / "model" / "a").read_text() == "so\n"
    assert hpc.slurm_ids(job.id) == [job.backend.ref]
    assert float(job.gpu_seconds) >= 2
    assert is_metered(hpc, job)


def test_a_code_and_a_signal_are_those_of_the_command(hpc: SlurmStack) -> None:
    failed = hpc.submit("echo why >&2; exit 3", gpus=1, coretype="gpu")
    killed = hpc.submit("sleep 1; kill -KILL $$", gpus=1, coretype="gpu")
    job = hpc.client.wait(failed)
    assert end_of(job) == ("FAILED", "exit_nonzero", 3, None)
    assert hpc.log(failed, "stderr") == "why\n"
    assert is_metered(hpc, job)
    job = hpc.client.wait(killed)
    assert end_of(job) == ("FAILED", "killed_by_signal", None, 9)
    assert is_metered(hpc, job)


@pytest.mark.parametrize("whom", ["command", "batch script"])
def test_a_job_that_is_killed_from_outside_says_so(hpc: SlurmStack, whom: str) -> None:
    number = "$$" if whom == "command" else "$PPID"
    job = hpc.submit(f"echo {number}; exec sleep 1000", gpus=1, coretype="gpu")
    hpc.until(job, lambda one: hpc.log(one.id).endswith("\n"), "the number of its process")
    os.kill(int(hpc.log(job)), signal.SIGKILL)
    ended = hpc.client.wait(job)
    assert end_of(ended) == ("FAILED", "killed_by_signal", None, 9)
    assert is_metered(hpc, ended)


def test_a_job_that_is_cancelled_by_hand_is_stopped_and_says_by_whom(hpc: SlurmStack) -> None:
    job = hpc.submit("sleep 1000", gpus=1, coretype="gpu")
    hpc.running(job)
    hpc.cluster.run(["scancel", hpc.slurm_id(job)])
    ended = hpc.client.wait(job)
    assert (ended.state, ended.end_reason) == ("STOPPED", "stopped_at_backend")
    assert "cancelled by uid 0" in (ended.message or "")
    assert is_metered(hpc, ended)


def test_a_job_above_its_memory_says_so(hpc: SlurmStack, cluster_with_memory_limits: Cluster) -> None:
    job = hpc.run("head -c 200m /dev/zero | tail", coretype="small")
    assert job.backend.cluster == "hpc"
    assert (job.state, job.end_reason) == ("FAILED", "out_of_memory")


@pytest.mark.parametrize(("coretype", "word"), [("nowhere", "partition"), ("impossible", "feature")])
def test_what_the_cluster_does_not_know_is_a_matter_of_configuration(hpc: SlurmStack, coretype: str, word: str) -> None:
    job = hpc.run("true", coretype=coretype)
    assert (job.state, job.end_reason) == ("FAILED", "configuration")
    assert word in (job.message or "").lower()
    assert job.started_at is None


def test_waiting_jobs_say_why_and_those_that_can_never_run_are_ended(hpc: SlurmStack) -> None:
    failed = jobs.submit(hpc.cluster, "false")
    stranger = jobs.submit(hpc.cluster, "sleep 1000", "--exclusive")
    jobs.wait_until(hpc.cluster, stranger, "RUNNING")
    waits, held, depends = (hpc.submit("true") for _ in range(3))
    said = {}
    for job in (waits, held, depends):
        hpc.slurm_id(job)
        said[job] = hpc.until(job, lambda one: one.backend.raw_reason, "a reason to be told").backend.raw_reason
    assert all(reason and ": " in reason for reason in said.values()), said
    hpc.cluster.run(["scontrol", "hold", hpc.slurm_id(held)])
    hpc.cluster.run(["scontrol", "update", f"jobid={hpc.slurm_id(depends)}", f"dependency=afterok:{failed}"])
    for job, word in ((held, "JobHeld"), (depends, "DependencyNeverSatisfied")):
        ended = hpc.client.wait(job)
        assert (ended.state, ended.end_reason) == ("FAILED", "configuration")
        assert word in (ended.message or "")
        assert jobs.state(hpc.cluster, hpc.slurm_id(job)) == "CANCELLED"
    assert hpc.client.job(waits).state == "PENDING"
    hpc.cluster.run(["scancel", stranger])
    assert hpc.client.wait(waits).state == "SUCCEEDED"


def test_a_requeued_job_runs_again_as_a_new_segment_of_the_same_attempt(hpc: SlurmStack) -> None:
    job = hpc.submit("echo run; [ $(wc -l <$HOME/../logs/stdout) = 2 ] || sleep 1000", gpus=1, coretype="gpu")
    hpc.running(job)
    hpc.until(job, lambda _: hpc.log(job) == "run\n", "its first line")
    hpc.cluster.run(["scontrol", "requeue", hpc.slurm_id(job)])
    ended = hpc.client.wait(job)
    assert end_of(ended) == ("SUCCEEDED", "succeeded", 0, None)
    [attempt] = ended.attempts
    assert [segment.key.restart for segment in attempt.segments] == [0, 1]
    assert is_metered(hpc, ended)


@pytest.mark.long
def test_a_preempted_job_runs_again(hpc: SlurmStack, tmp_path: Path) -> None:
    """As a new segment where Slurm queues it again; as the next attempt where it cancels it."""
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.1; done"
    again, anew = (hpc.submit(script, gpus=1, coretype=coretype) for coretype in ("lowrq", "low"))
    for job in (again, anew):
        hpc.running(job)
    wins = jobs.submit(hpc.cluster, "sleep 1000", "--gres=gpu:4", "--partition=high")
    hpc.until(again, lambda one: one.state == "PENDING", "Slurm to queue it again")
    hpc.until(anew, lambda one: one.attempt == 2, "its next attempt")
    gate.touch()
    hpc.cluster.run(["scancel", wins])
    ended = hpc.client.wait(again)
    assert (ended.state, len(ended.attempts)) == ("SUCCEEDED", 1)
    ended = hpc.client.wait(anew)
    assert (ended.state, ended.attempts[0].end_reason) == ("SUCCEEDED", "preempted")


def test_a_suspended_job_is_shown_so_and_not_billed_for_it(hpc: SlurmStack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = hpc.submit(f"until [ -e {gate} ]; do sleep 0.1; done", gpus=1, coretype="gpu")
    hpc.running(job)
    hpc.cluster.run(["scontrol", "suspend", hpc.slurm_id(job)])
    hpc.until(job, lambda one: one.backend.raw_state == "SUSPENDED", "the suspension to be told")
    gate.touch()
    hpc.cluster.run(["scontrol", "resume", hpc.slurm_id(job)])
    ended = hpc.client.wait(job)
    assert end_of(ended) == ("SUCCEEDED", "succeeded", 0, None)
    assert is_metered(hpc, ended)


def test_a_job_stops_with_its_grace_and_by_force(hpc: SlurmStack) -> None:
    script = "trap 'echo saved >out; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    gentle = hpc.submit(script, gpus=1, coretype="gpu", outputs=("out",))
    stubborn = hpc.submit("trap '' TERM; echo up; while :; do sleep 0.1; done", gpus=1, coretype="gpu")
    for job in (gentle, stubborn):
        hpc.until(job, lambda one: hpc.log(one.id) == "up\n", "it to be up")
    hpc.client.command(gentle, "stop", {"grace_seconds": 60})
    hpc.client.command(stubborn, "stop", {"force": True})
    for job in (gentle, stubborn):
        ended = hpc.client.wait(job)
        assert (ended.state, ended.end_reason) == ("STOPPED", "stopped_by_user")
        assert is_metered(hpc, ended)
    assert [file.path for file in hpc.client.outputs(gentle).files] == ["out"]


def test_a_job_is_paused_and_goes_on_with_its_outputs(hpc: SlurmStack) -> None:
    script = (
        "trap 'echo saved >state; exit 0' TERM; [ -e state ] && exec cat state; echo up; while :; do sleep 0.1; done"
    )
    job = hpc.submit(script, gpus=1, coretype="gpu", outputs=("state",))
    hpc.until(job, lambda one: hpc.log(one.id) == "up\n", "it to be up")
    hpc.client.command(job, "pause")
    paused = hpc.until(job, lambda one: one.state == "PAUSED", "the job to be paused")
    assert jobs.state(hpc.cluster, paused.backend.ref or hpc.slurm_ids(job)[0]) in ("COMPLETED", "FAILED", "CANCELLED")
    hpc.client.command(job, "resume")
    ended = hpc.client.wait(job)
    assert end_of(ended) == ("SUCCEEDED", "succeeded", 0, None)
    assert hpc.log(job) == "saved\n"
    assert len(hpc.slurm_ids(job)) == 2


def test_strangers_jobs_and_arrays_are_nothing_to_it(hpc: SlurmStack) -> None:
    job = hpc.submit("sleep 1000")
    hpc.running(job)
    name = hpc.cluster.run(["squeue", "--noheader", f"--jobs={hpc.slurm_id(job)}", "--format=%j"]).stdout.strip()
    array = jobs.submit(hpc.cluster, "sleep 1000", "--array=1-4", f"--job-name={name.replace('.a1.', '.a2.')}")
    other = jobs.submit(hpc.cluster, "sleep 1000", "--job-name=tidegate.j.a1.s1")
    assert hpc.run("true").state == "SUCCEEDED"
    hpc.client.command(job, "stop", {"force": True})
    ended = hpc.client.wait(job)
    assert (ended.state, len(ended.attempts)) == ("STOPPED", 1)
    for stranger in (other, array):
        assert set(jobs.state(hpc.cluster, stranger).split()) <= {"RUNNING", "PENDING"}
