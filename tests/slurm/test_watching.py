"""What is told of jobs on a real cluster, whatever becomes of them and of the cluster's daemons."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from services.watcher.slurm.blindness import Sight
from shared.backends.slurm.client import TimeOuts
from tests.slurm.jobs import state, submit, wait_until
from tests.slurm.watching import Watching

FOREVER = "trap 'exit 4' TERM; touch started; while :; do sleep 0.1; done"
UNTIL_TOLD = "while ! [ -e go ]; do sleep 0.1; done"


@pytest.fixture
def watching(cluster: Cluster, tmp_path: Path) -> Watching:
    return Watching(cluster, tmp_path)


async def test_an_end_is_told_with_its_code_or_signal_and_the_clusters_times(watching: Watching) -> None:
    scripts = {"exit 3": (3, None), "true": (0, None), "kill -9 $$": (None, 9), "exit 137": (137, None)}
    for job, how in [(await watching.launch(script, gpus=0), how) for script, how in scripts.items()]:
        end = await watching.end(job)
        # A signal that ended the command is a signal to Slurm, and 128 more to a shell.
        assert (end["code"], end["signal"]) == how
        assert (end["message"], end["reason"], end["self_reported"]) == (None, None, False)
        assert (datetime.fromisoformat(end["started_at"]), datetime.fromisoformat(end["ended_at"])) == (
            watching.accounted(job)
        )


async def test_a_killed_batch_script_and_one_cancelled_by_somebody(watching: Watching) -> None:
    killed, cancelled = await watching.launch(FOREVER), await watching.launch(FOREVER)
    for job in (killed, cancelled):
        await watching.until_told(job, "seen_running")
    watching.cluster.run(["scancel", "--signal=KILL", "--batch", killed.slurm_id])
    watching.cluster.run(["scancel", cancelled.slurm_id])
    end = await watching.end(killed)
    assert (end["code"], end["signal"], end["stop_recorded"]) == (None, 9, None)
    end = await watching.end(cancelled)
    assert (end["reason"], end["stop_recorded"]) == ("stopped_at_backend", True)
    assert "cancelled by uid 0" in end["message"]


async def test_a_requeued_job_has_a_segment_for_each_run(watching: Watching) -> None:
    job = await watching.launch(f"[ -e started ] && exit 5; {FOREVER}")
    running = await watching.until_told(job, "seen_running")
    watching.cluster.run(["scontrol", "requeue", job.slurm_id])
    waits = await watching.until_told(job, "seen_pending")
    assert (waits["segment"]["restart"], waits["segment"]["submission"]) == (1, job.name)
    segment = await watching.until_told(job, "segment_requeued", lambda fields: not fields["estimated"])
    assert (segment["segment"], segment["started_at"]) == (running["segment"], running["started_at"])
    end = await watching.end(job)
    assert (end["segment"]["restart"], end["code"]) == (1, 5)
    assert end["started_at"] > segment["ended_at"]


async def test_suspended_time_is_told_and_nothing_changes_meanwhile(watching: Watching) -> None:
    job = await watching.launch(UNTIL_TOLD)
    await watching.until_told(job, "seen_running")
    watching.cluster.run(["scontrol", "suspend", job.slurm_id])
    suspended = await watching.until_told(job, "seen_running", lambda fields: fields["suspended_since"])
    before = (await watching.look())[job.job]
    await asyncio.sleep(2)
    assert (await watching.look())[job.job] is before
    watching.cluster.run(["scontrol", "resume", job.slurm_id])
    again = await watching.until_told(job, "seen_running", lambda fields: not fields["suspended_since"])
    assert again["suspended_ms"] >= 2000
    assert suspended["suspended_since"] >= again["started_at"]
    watching.let_go(job)
    end = await watching.end(job)
    assert abs(end["suspended_ms"] - again["suspended_ms"]) <= 1000


async def test_what_can_never_start_is_told_ended_and_cancelled_by_the_launcher(
    cluster: Cluster, tmp_path: Path
) -> None:
    watching = Watching(cluster, tmp_path, stuck_seconds=1)
    failed = submit(cluster, "exit 1")
    wait_until(cluster, failed, "FAILED")
    never = watching.sbatch("true", f"--dependency=afterok:{failed}")
    held = watching.sbatch("true", "--hold")
    requeued = watching.sbatch("sleep 600", "--requeue")
    await watching.until_told(requeued, "seen_running")
    cluster.run(["scontrol", "requeuehold", requeued.slurm_id])
    for job, why in ((never, "DependencyNeverSatisfied"), (held, "JobHeldUser"), (requeued, "held state")):
        end = await watching.end(job)
        assert (end["reason"], end["stop_recorded"]) == ("configuration", False)
        assert end["message"].startswith("it can never start: ")
        assert why in end["message"]
        await watching.revoke(job)
        assert state(cluster, job.slurm_id) == "CANCELLED"


async def test_a_node_that_fails_is_no_fault_of_the_job(watching: Watching) -> None:
    job = watching.sbatch("sleep 600", "--no-requeue")
    await watching.until_told(job, "seen_running")
    watching.cluster.take_node_down()
    end = await watching.end(job)
    assert (end["reason"], end["code"], end["signal"]) == ("node_lost", None, None)


async def test_an_end_while_the_controller_was_away_is_as_the_runner_dates_it(cluster: Cluster, tmp_path: Path) -> None:
    watching = Watching(cluster, tmp_path, time_outs=TimeOuts(query_seconds=1))
    job = await watching.launch(UNTIL_TOLD)
    await watching.until_told(job, "seen_running")
    kept = watching.eyes._blindness.sight
    cluster.stop_daemon("slurmctld")
    look = await watching.eyes.observe()
    assert not look.complete
    assert [seen.alive for seen in look.submissions] == [True]
    watching.let_go(job)
    recorded = await watching.until_recorded(job)
    await asyncio.sleep(4)
    cluster.start_daemon("slurmctld")
    watching.owed.left = Sight(kept.looked_at)
    another = watching.observer()
    await another.begin()
    for eyes in (watching.eyes, another):
        end = await watching.end(job, eyes)
        assert (end["code"], end["ended_at"]) == (0, recorded.ended_at.isoformat())
        assert "late, after a time in which it could not be asked" in end["message"]


async def test_without_accounting_what_the_queue_says_is_told_and_nobody_is_absent(watching: Watching) -> None:
    job, gone = await watching.launch("exit 3"), watching.sbatch("true")
    watching.cluster.run(["scancel", gone.slurm_id])
    watching.cluster.stop_daemon("slurmdbd")
    end = await watching.end(job)
    assert end["code"] == 3
    assert not (await watching.eyes.observe()).complete


async def test_strangers_arrays_and_other_deployments_are_none_of_ours(watching: Watching) -> None:
    ours = watching.sbatch("sleep 600")
    submit(watching.cluster, "sleep 600", "--array=1-20%2", f"--job-name={ours.name.replace(ours.job, 'j1')}")
    submit(watching.cluster, "sleep 600", "--job-name=FAILED-rerun")
    submit(watching.cluster, "sleep 600", f"--job-name=other{ours.name}", "--comment=tidegate/1 t1 acme")
    submit(watching.cluster, "sleep 600", f"--job-name={watching.deployment}.j1.a1.s1")
    await watching.until_told(ours, "seen_running")
    assert (await watching.look()).keys() == {ours.job}


async def test_a_job_that_was_purged_before_anybody_looked(watching: Watching) -> None:
    watching.cluster.change(MinJobAge="2")
    job = await watching.launch("exit 3")
    await watching.until_recorded(job)
    watching.cluster.wait_for(lambda: not state(watching.cluster, job.slurm_id), "the job to be forgotten")
    end = await watching.end(job)
    assert (end["code"], end["self_reported"]) == (3, False)
    blind = watching.observer(accounting=False)
    assert (await watching.look(blind)).keys() == set()
    [alone] = await blind.find(job.job, 1)
    [fact] = blind.found([alone])
    assert (fact.fact["code"], fact.fact["self_reported"]) == (3, True)
