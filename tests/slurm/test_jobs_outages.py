"""Jobs on a Slurm cluster of which parts are away for a while: nothing is told that nobody saw."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stacks import eventually
from tests.slurm import jobs
from tests.slurm.stacks import SlurmStack, accounted_gpu_seconds


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What jobs wait for."""
    return tmp_path / "gate"


def job_at(gate: Path, stack: SlurmStack) -> str:
    """One that runs until the gate is there."""
    job = stack.submit(f"until [ -e {gate} ]; do sleep 0.1; done", gpus=1, coretype="gpu")
    stack.running(job)
    return job


def recorded_end(stack: SlurmStack, job: str) -> dict[str, Any]:
    """What its runner wrote at its end."""
    found: list[Path] = []

    def there() -> bool:
        found[:] = (stack.stack.home / "local" / "work").glob(f"*/{job}/a1/exit.0.json")
        return bool(found)

    eventually(there, "the runner's record of its end")
    return dict(json.loads(found[0].read_text()))


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.long)])
def test_a_job_that_ends_while_the_controller_is_away(hpc: SlurmStack, gate: Path, seconds: float) -> None:
    job = job_at(gate, hpc)
    id = hpc.slurm_id(job)
    hpc.cluster.stop_daemon("slurmctld")
    gate.touch()
    record = recorded_end(hpc, job)
    time.sleep(seconds)
    assert hpc.client.job(job).state == "RUNNING"
    hpc.cluster.start_daemon("slurmctld")
    ended = hpc.client.wait(job)
    assert (ended.state, ended.exit.code) == ("SUCCEEDED", 0)
    assert ended.started_at is not None
    ran = record["ended_ms"] / 1000 - ended.started_at.timestamp()
    assert ran - 1 <= float(ended.gpu_seconds) <= ran + 3
    if seconds:
        assert float(ended.gpu_seconds) < accounted_gpu_seconds(hpc.cluster, id) - seconds / 2
        assert "late" in (ended.message or "") + " ".join(ended.warnings)


def test_a_job_goes_on_while_the_controller_is_away(hpc: SlurmStack, gate: Path) -> None:
    job = job_at(gate, hpc)
    hpc.cluster.restart_daemon("slurmctld")
    gate.touch()
    ended = hpc.client.wait(job)
    assert (ended.state, ended.exit.code) == ("SUCCEEDED", 0)
    assert float(ended.gpu_seconds) == accounted_gpu_seconds(hpc.cluster, ended.backend.ref or "")


def test_a_job_ends_while_accounting_is_away(hpc: SlurmStack, gate: Path) -> None:
    job = job_at(gate, hpc)
    hpc.cluster.stop_daemon("slurmdbd")
    gate.touch()
    ended = hpc.client.wait(job)
    assert (ended.state, ended.exit.code) == ("SUCCEEDED", 0)


@pytest.mark.long
def test_a_job_that_was_forgotten_before_anybody_looked_is_known_from_accounting(hpc: SlurmStack, gate: Path) -> None:
    job = job_at(gate, hpc)
    _forgotten_unseen(hpc, job, gate)
    ended = hpc.client.wait(job)
    assert (ended.state, ended.exit.code, ended.exit.self_reported) == ("SUCCEEDED", 0, False)
    assert float(ended.gpu_seconds) == accounted_gpu_seconds(hpc.cluster, ended.backend.ref or "")


def _forgotten_unseen(stack: SlurmStack, job: str, gate: Path) -> None:
    """It ends, and the controller forgets it, while nobody looks."""
    id = stack.slurm_id(job)
    stack.cluster.change(MinJobAge="2")
    with stack.standing_still("watcher"):
        gate.touch()
        recorded_end(stack, job)
        eventually(lambda: jobs.state(stack.cluster, id) == "", "the controller to forget it")


def test_what_runs_on_a_drained_node_ends_and_what_waits_runs_when_it_is_back(hpc: SlurmStack, gate: Path) -> None:
    runs = job_at(gate, hpc)
    hpc.cluster.update_node("drain")
    waits = hpc.submit("true")
    gate.touch()
    assert hpc.client.wait(runs).state == "SUCCEEDED"
    assert hpc.client.job(waits).state in ("QUEUED", "SUBMITTED", "PENDING")
    hpc.cluster.update_node("resume")
    assert hpc.client.wait(waits).state == "SUCCEEDED"


@pytest.mark.long
def test_a_job_reaches_its_time_limit(hpc: SlurmStack) -> None:
    script = "trap 'echo warned' USR1; while :; do sleep 0.1; done"
    job = hpc.run(script, gpus=1, coretype="gpu", time_limit_seconds=60, warning_signal="USR1", warning_seconds=30)
    assert (job.state, job.end_reason) == ("FAILED", "time_limit")
    assert hpc.log(job.id) == "warned\n"
    assert float(job.gpu_seconds) == accounted_gpu_seconds(hpc.cluster, job.backend.ref or "")


def test_a_job_on_a_node_that_goes_down_runs_again_where_slurm_may_start_it(hpc: SlurmStack, gate: Path) -> None:
    job = job_at(gate, hpc)
    hpc.cluster.take_node_down()
    hpc.until(job, lambda one: one.state == "PENDING", "Slurm to queue it again")
    gate.touch()
    hpc.cluster.start_daemon("slurmd")
    ended = hpc.client.wait(job)
    assert (ended.state, len(ended.attempts)) == ("SUCCEEDED", 1)
    assert [segment.key.restart for segment in ended.attempts[0].segments] == [0, 1]


@pytest.mark.long
def test_a_job_that_slurm_may_not_start_again_is_lost_with_its_node_and_has_a_next_attempt(
    beside: SlurmStack, gate: Path
) -> None:
    job = job_at(gate, beside)
    beside.cluster.take_node_down()
    beside.until(job, lambda one: one.attempt == 2, "its next attempt")
    gate.touch()
    beside.cluster.start_daemon("slurmd")
    ended = beside.client.wait(job)
    assert (ended.state, ended.attempts[0].end_reason) == ("SUCCEEDED", "node_lost")


@pytest.mark.long
def test_a_job_that_only_its_runner_knows_is_told_with_a_warning(beside: SlurmStack, gate: Path) -> None:
    """Slurm has forgotten it, and there is no accounting: that it is not only late takes a minute to know."""
    job = job_at(gate, beside)
    _forgotten_unseen(beside, job, gate)
    ended = beside.client.wait(job)
    assert (ended.state, ended.exit.code, ended.exit.self_reported) == ("SUCCEEDED", 0, True)
    assert "runner's own record" in " ".join((ended.message or "", *ended.warnings))


@pytest.mark.long
def test_two_stacks_share_a_cluster(hpc: SlurmStack, beside: SlurmStack, gate: Path) -> None:
    ours, theirs = job_at(gate, hpc), job_at(gate, beside)
    ended = hpc.run("true"), beside.run("true")
    assert [job.state for job in ended] == ["SUCCEEDED"] * 2
    hpc.client.command(ours, "stop", {"force": True})
    assert hpc.client.wait(ours).state == "STOPPED"
    assert jobs.state(beside.cluster, beside.slurm_id(theirs)) == "RUNNING"
    gate.touch()
    assert beside.client.wait(theirs).state == "SUCCEEDED"
