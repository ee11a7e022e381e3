"""Sealing attempts: nothing runs and nothing can start any more once the launcher has voted."""

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from services.launcher.local import LocalBackend
from shared.backends.local.messages import CouldNotAsk, LaunchKind
from shared.backends.local.sightings import LocalState
from shared.lifecycle.facts import AnyFact, InputValid, LauncherSealed
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import State
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import Launcher, World, kinds

READY = "trap '' TERM; touch ready; while true; do sleep 0.05; done"
GENTLE = "trap 'echo stopped >> ledger; exit 0' TERM; touch ready; while true; do sleep 0.02; done"


async def running(world: World, launcher: Launcher, script: str, **spec: Any) -> Job:
    """A job whose command is up."""
    job = await world.job("sh", "-c", script, **spec)
    await launcher.launch(job.again())
    ready = world.backend.root / job.directory / "ready"
    while not ready.exists():  # noqa: ASYNC110 # the job's own sign; the test's time limit ends the wait
        await asyncio.sleep(0.01)
    await world.facts(job)
    return job


def is_alive(world: World, job: Job, attempt: int = 1) -> bool:
    """Whether the backend shows a supervisor of the attempt."""
    return any(
        seen.state not in (LocalState.EXITED, LocalState.GONE)
        for seen in world.backend.observer.observe().submissions
        if (seen.job, seen.attempt) == (job.id, attempt)
    )


def vote(facts: list[AnyFact]) -> LauncherSealed:
    """The launcher's vote among these."""
    (found,) = [fact for fact in facts if isinstance(fact, LauncherSealed)]
    return found


async def test_after_the_exit_the_gpus_are_freed_the_vote_is_given_and_the_records_are_released(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.launch(job.again())
    await world.until_ended(job)
    await world.facts(job)
    await launcher.end(job.exited(world.submission(job)))
    told = await world.facts(job)
    assert kinds(told) == ["gpus_freed", "launcher_sealed"]
    assert vote(told).ran
    assert job.record.state is State.SUCCEEDED
    assert world.backend.observer.observe().submissions == ()
    row = await world.row(job)
    assert (row["state"], row["ran"], row["released"]) == ("sealed", True, True)


async def test_many_exits_are_sealed_together(world: World) -> None:
    jobs = [await world.job("true") for _ in range(40)]
    launcher = world.launcher()
    await launcher.launch(*(job.again() for job in jobs))
    await world.until_ended(*jobs)
    await world.facts(*jobs)
    await launcher.end(*(job.exited(world.submission(job)) for job in jobs))
    await world.facts(*jobs)
    assert {job.record.state for job in jobs} == {State.SUCCEEDED}


async def test_a_stop_before_the_launch_starts_nothing(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.handle(job.again())
    await launcher.handle(job.stop())
    await launcher.launch()
    await launcher.end()
    told = await world.facts(job)
    assert kinds(told) == ["gpus_freed", "launcher_sealed"]
    assert not vote(told).ran
    assert (job.record.state, job.record.end_reason) == (State.STOPPED, EndReason.STOPPED_BY_USER)
    assert world.ledger(job) == []


async def test_a_stopped_attempt_cannot_be_launched_behind_the_launchers_back(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.end(job.stop())
    request = await world.backend.request(job.id, "touch", "ran", tenant="acme", token="later", stage=False)
    assert (await world.backend.launch(request)).kind is LaunchKind.REFUSED
    assert not (world.backend.root / job.directory / "ran").exists()


async def test_a_stop_lets_the_command_end_by_itself_within_its_grace(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, GENTLE)
    await launcher.end(job.stop(grace_seconds=600))
    assert vote(await world.until_sealed(launcher, job)).ran
    assert world.ledger(job) == ["stopped"]
    (seen,) = world.backend.observer.observe().submissions
    assert seen.exit is not None
    assert seen.exit.stop_seen_at is not None


async def test_a_command_that_ignores_sigterm_is_killed_after_its_grace(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    await launcher.end(job.stop(grace_seconds=1))
    assert vote(await world.until_sealed(launcher, job)).ran
    (seen,) = world.backend.observer.observe().submissions
    assert seen.exit is not None
    assert seen.exit.signal == 9


async def test_force_kills_at_once_also_after_a_gentle_stop(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    await launcher.end(job.stop(grace_seconds=3600))
    assert kinds(await world.facts(job)) == []
    await launcher.end(job.stop(force=True))
    await world.until_sealed(launcher, job)
    (seen,) = world.backend.observer.observe().submissions
    assert seen.exit is not None
    assert seen.exit.signal == 9


async def test_the_records_of_a_stopped_job_stay_until_its_end_is_in_the_record(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, GENTLE)
    await launcher.end(job.stop(grace_seconds=600))
    await world.until_sealed(launcher, job)
    await launcher.ending.release()
    await launcher.sweep.once()
    assert len(world.backend.observer.observe().submissions) == 1
    await launcher.handle(job.exited(world.submission(job)))
    assert job.record.end_reason is EndReason.SUCCEEDED
    await launcher.ending.release()
    assert world.backend.observer.observe().submissions == ()
    assert (await world.row(job))["released"]


async def test_a_lost_job_is_swept_before_the_vote(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    pid = world.backend.supervisor_pid(world.submission(job))
    world.backend.kill_host()
    os.kill(pid, signal.SIGKILL)
    await launcher.end(job.lost())
    told = await world.until_sealed(launcher, job)
    assert vote(told).ran
    assert job.record.end_reason is EndReason.LOST


async def test_a_newer_attempt_ends_everything_older(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    job.record = job.record.model_copy(update={"state": State.FAILED})  # as a restored record may say
    job.retry()
    await world.stage(job)
    await launcher.end(job.staged())
    while (await world.row(job, 1))["state"] != "sealed":
        await launcher.end()
    assert not is_alive(world, job, attempt=1)
    await launcher.launch()
    assert is_alive(world, job, attempt=2)


async def test_a_terminal_record_kills_what_was_never_sealed(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    job.record = job.record.model_copy(update={"state": State.STOPPED})
    event = job.apply(InputValid(**job.head("stager")))
    assert event is not None
    await launcher.end(event)
    await world.until_sealed(launcher, job)
    assert not is_alive(world, job)


async def test_what_cannot_be_asked_is_asked_again_and_never_taken_for_an_absence(world: World) -> None:
    job = await world.job()
    broken = True

    class Failing(type(world.backend.client)):  # type: ignore[misc] # the class of the real client
        async def revoke_all(self, directories: list[object]) -> object:
            if broken:
                return [CouldNotAsk("the disk does not answer")] * len(directories)
            return await super().revoke_all(directories)

    launcher = world.launcher(backend=Failing(world.backend.root))
    await launcher.end(job.stop())
    assert await world.facts(job) == []
    row = await world.row(job)
    assert (row["state"], row["waits_for"]) == ("revoking", "the disk does not answer")
    broken = False
    assert not vote(await world.until_sealed(launcher, job)).ran


async def test_a_claim_that_shows_after_the_revocation_is_waited_for(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    await launcher.end(job.stop(grace_seconds=3600))
    await launcher.end()
    assert await world.facts(job) == []
    assert (await world.row(job))["state"] == "revoking"


async def test_after_grace_and_a_margin_a_broken_supervisor_is_killed_too(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    pid = world.backend.supervisor_pid(world.submission(job))
    os.kill(pid, signal.SIGSTOP)
    clock = FixedClock(SystemClock().now())
    launcher.ending._clock = launcher.events._clock = clock
    await launcher.end(job.stop(grace_seconds=1))
    while (await world.row(job))["state"] != "sealed":
        clock.advance(timedelta(seconds=7))
        await launcher.end()
    assert not is_alive(world, job)
    assert (await world.row(job))["ran"]
    (seen,) = world.backend.observer.observe().submissions
    assert seen.exit is not None, "a stop stays a stop though its supervisor saw no end"
    assert (seen.exit.signal, seen.exit.stop_seen_at is not None) == (signal.SIGKILL, True)


async def test_a_sealed_attempt_that_is_seen_alive_is_killed(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, READY)
    await world.database.execute(
        "UPDATE launches SET state = 'sealed', sealed_n = 99, sealed_at = now(), ran = false WHERE job = $1", job.id
    )
    assert await launcher.sweep.once() == 1
    (seen,) = world.backend.observer.observe().submissions
    assert seen.state is LocalState.EXITED
    assert await launcher.sweep.once() == 0
    assert world.backend.observer.observe().submissions == ()
    assert await world.facts(job) == []


async def test_what_has_ended_since_it_was_observed_is_no_sealed_attempt_alive(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, GENTLE)
    stale = world.backend.observer.observe()
    await world.backend.client.stop(world.submission(job), 600)
    await world.until_ended(job)
    await world.database.execute("UPDATE launches SET state = 'sealed', sealed_n = 99, sealed_at = now(), ran = true")
    here = launcher.backend
    assert isinstance(here, LocalBackend)
    here._observer.observe = lambda: stale  # type: ignore[method-assign] # as a slow look would give
    assert await launcher.sweep.once() == 0


async def test_what_another_deployment_runs_is_left_alone(world: World) -> None:
    launcher = world.launcher()
    job = await world.job()
    await launcher.handle(job.again())
    await world.database.execute("UPDATE launches SET state = 'sealed', sealed_n = 99, sealed_at = now(), ran = false")
    submission = await world.backend.submit(await world.backend.request(job.id, "sleep", "60", stage=False))
    await world.backend.until(submission, LocalState.RUNNING)
    assert await launcher.sweep.once() == 0
    assert is_alive(world, job)
