"""The launcher's rows are taken back in time: nothing runs twice, and what has run since ends right."""

from datetime import timedelta

import pytest

from shared.backends.local.sightings import LocalState
from shared.lifecycle import facts as f
from shared.lifecycle.facts import Accepted, LauncherSealed
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import AFTER_THE_LEASE, World, kinds

WAITS = ("sh", "-c", "echo $TIDEGATE_JOB_ID >> ledger; while [ ! -e go ]; do sleep 0.01; done")


async def taken_at(world: World, job: Job, state: str) -> tuple[list[object], JobRecord]:
    """The launcher has come as far as `state` with this job: a backup of its row and of the job's record."""
    launcher = world.launcher()
    await launcher.handle(job.again())
    if state == "submitting":
        now = SystemClock().now()
        await launcher.store.claim_launches(1, "token", now + timedelta(seconds=15), now)
    if state == "submitted":
        await launcher.launch()
        await world.facts(job)
    backup, record = await world.backup(), job.record
    if state == "submitting":
        await launcher.start()
    await launcher.launch()
    await world.facts(job)
    return backup, record


@pytest.mark.parametrize("first", ["its end is told", "launching goes on"])
@pytest.mark.parametrize("state", ["intent", "submitting", "submitted"])
async def test_an_attempt_that_has_run_ended_and_been_released_since_ends_right(
    world: World, state: str, first: str
) -> None:
    job = await world.job()
    backup, record = await taken_at(world, job, state)
    await world.until_ended(job)
    await world.launcher().end(job.exited(world.submission(job)))
    assert (await world.row(job))["released"]

    await world.restore(backup)
    world.clock = FixedClock(SystemClock().now() + AFTER_THE_LEASE)  # any lease of the lost time is over
    launcher = world.launcher("two")
    await launcher.store.take_over(world.clock.now(), at_start=False)
    await launcher.launch(job.restored(record, 2))
    assert (await world.row(job))["state"] in (state, "intent"), "nothing is launched before what runs has been seen"
    if first == "launching goes on":
        world.restoring = False
        await launcher.launch()
        await world.facts(job)
    await launcher.end(job.exited(world.submission(job)))
    told = await world.facts(job)
    world.restoring = False
    await launcher.launch()
    assert [fact.ran for fact in told if isinstance(fact, LauncherSealed)] == [True]
    assert {fact.version.epoch for fact in told} == {2}
    assert job.record.state is State.SUCCEEDED
    row = await world.row(job)
    assert (row["state"], row["ran"], row["released"]) == ("sealed", True, True)
    assert world.ledger(job) == [job.id]


async def test_while_restoring_nothing_is_launched_and_what_is_to_end_ends(world: World) -> None:
    stopped, waiting = await world.job(*WAITS), await world.job()
    launcher = world.launcher()
    await launcher.launch(stopped.again())
    await world.facts(stopped)
    world.restoring = True
    await launcher.launch(waiting.again())
    await launcher.handle(stopped.stop(force=True))
    assert kinds(await world.until_sealed(launcher, stopped)) == ["gpus_freed", "launcher_sealed"]
    assert (await world.row(waiting))["state"] == "intent"
    assert world.ledger(waiting) == []
    world.restoring = False
    await launcher.launch()
    assert kinds(await world.facts(waiting)) == ["accepted"]


async def test_a_record_taken_back_to_before_its_launch_adopts_what_runs_when_it_asks_again(world: World) -> None:
    job = await world.job(*WAITS)
    queued = job.record
    await world.launcher().launch(job.again())
    await world.facts(job)
    seen = await world.backend.until(world.submission(job), LocalState.RUNNING)
    await world.restore([])
    world.restoring = False
    launcher = world.launcher()
    await launcher.launch(job.restored(queued, 2))
    (accepted,) = await world.facts(job)
    assert isinstance(accepted, Accepted)
    assert accepted.version.epoch == 2
    assert seen.spec is not None
    assert accepted.segment.created_at == seen.spec.accepted_at
    (world.backend.root / job.directory / "go").touch()
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_an_attempt_that_was_adopted_while_it_runs_is_never_launched_and_is_sealed_at_its_end(
    world: World,
) -> None:
    job = await world.job(*WAITS)
    staged = job.record
    await world.launcher().launch(job.again())
    await world.facts(job)
    seen = await world.backend.until(world.submission(job), LocalState.RUNNING)
    await world.restore([])
    world.restoring = False
    launcher = world.launcher()
    job.restored(staged, 2)
    assert seen.spec is not None
    assert seen.started is not None
    segment = f.SegmentKey(submission=seen.submission, created_at=seen.spec.accepted_at)
    running = f.SeenRunning(
        **job.head("watcher"), segment=segment, started_at=seen.started.started_at, raw_state="running"
    )
    adopted = job.apply(running)
    assert adopted is not None
    await launcher.launch(adopted)
    assert await world.row(job) is None
    (world.backend.root / job.directory / "go").touch()
    await world.until_ended(job)
    await launcher.end(job.exited(seen.submission))
    assert [fact.ran for fact in await world.facts(job) if isinstance(fact, LauncherSealed)] == [True]
    assert world.ledger(job) == [job.id]


async def test_what_was_revoked_in_the_lost_time_is_refused_and_says_so(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.handle(job.again())
    backup, record = await world.backup(), job.record
    await launcher.end(job.stop())
    await world.restore(backup)
    world.restoring = False
    await launcher.launch(job.restored(record, 2))
    await launcher.end()
    assert kinds(await world.facts(job)) == ["launch_refused", "gpus_freed", "launcher_sealed"]
    assert (job.record.state, job.record.end_reason) == (State.FAILED, EndReason.LAUNCH_REFUSED)
    assert "is revoked" in (job.record.message or "")
    assert world.ledger(job) == []


async def test_a_reset_is_answered_with_the_newest_fact_in_the_new_epoch(world: World) -> None:
    job = await world.job(*WAITS)
    launcher = world.launcher()
    await launcher.launch(job.again())
    (before,) = await world.facts(job)
    world.epoch = 2
    await launcher.handle(job.restored(job.record, 2))
    (again,) = await world.facts(job)
    assert before.version < again.version
    assert again.model_copy(update={"version": before.version}) == before
