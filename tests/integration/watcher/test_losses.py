"""Lost: gone without any witness, for long enough, seen by somebody who could look."""

import os
import signal
from datetime import timedelta
from typing import Any

from shared.backends.local.observer import Observer
from shared.backends.local.sightings import LocalState, Observation
from shared.lifecycle.reasons import EndReason
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.watcher.world import Watcher, World, blind

FOREVER = ("sh", "-c", "touch ready; while true; do sleep 0.05; done")


async def gone(world: World) -> tuple[FixedClock, Watcher, Job, str]:
    """A running job that was seen, and whose supervisor has died since; the clock stands at its last sighting."""
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    job, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    clock.advance(timedelta(seconds=1))
    watcher = world.watcher(world.backend.observer.observe)
    await watcher.handle(job.again())
    await watcher.look()
    (running,) = await world.facts()
    assert running.kind == "seen_running"
    os.kill(world.backend.supervisor_pid(submission), signal.SIGKILL)
    await world.backend.until(submission, LocalState.GONE)
    return clock, watcher, job, submission


async def looks(clock: FixedClock, watcher: Watcher, seconds: int) -> None:
    """One look a second."""
    for _ in range(seconds):
        clock.advance(timedelta(seconds=1))
        await watcher.look()


async def test_a_dead_supervisor_is_lost_after_a_minute_of_looking(world: World) -> None:
    clock, watcher, job, _ = await gone(world)
    last = clock.now()
    await looks(clock, watcher, 60)
    assert await world.facts() == []
    await looks(clock, watcher, 2)
    (fact,) = await world.facts()
    assert (fact.kind, fact.job, fact.last_seen_at) == ("lost", job.id, last)
    await looks(clock, watcher, 70)
    assert await world.facts() == []


async def test_time_in_which_nobody_could_look_does_not_count(world: World) -> None:
    clock, watcher, _, _ = await gone(world)
    await looks(clock, watcher, 40)
    observe, watcher.eyes._observe = watcher.eyes._observe, lambda: blind("no")
    await looks(clock, watcher, 600)
    watcher.eyes._observe = observe
    await looks(clock, watcher, 15)
    assert await world.facts() == []
    await looks(clock, watcher, 10)
    assert [fact.kind for fact in await world.facts()] == ["lost"]


async def test_the_time_around_a_look_that_failed_does_not_count(world: World) -> None:
    clock, watcher, _, _ = await gone(world)
    observe = watcher.eyes._observe
    for _ in range(80):
        watcher.eyes._observe = lambda: blind("now and then")
        await looks(clock, watcher, 1)
        watcher.eyes._observe = observe
        await looks(clock, watcher, 1)
    assert await world.facts() == []


async def test_time_in_which_nobody_looked_does_not_count(world: World) -> None:
    clock, watcher, _, _ = await gone(world)
    await looks(clock, watcher, 10)
    clock.advance(timedelta(days=2))
    await looks(clock, watcher, 10)
    assert await world.facts() == []


async def test_a_watcher_that_was_down_tells_the_last_sighting_and_not_its_own_return(world: World) -> None:
    clock, watcher, _, _ = await gone(world)
    last = clock.now()
    await watcher.keep()
    clock.advance(timedelta(days=2))
    second = world.watcher()
    await looks(clock, second, 63)
    (fact,) = await world.facts()
    assert (fact.kind, fact.last_seen_at) == ("lost", last)


async def test_an_accepted_launch_that_never_shows_up_is_lost(world: World) -> None:
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    job = Job("true")
    job.staged()
    world.accept(job, f"tidegate.{job.id}.a1.s1")
    watcher = world.watcher()
    await watcher.handle(job.again())
    await looks(clock, watcher, 60)
    assert await world.facts() == []
    await looks(clock, watcher, 2)
    (fact,) = await world.facts()
    assert (fact.kind, fact.last_seen_at) == ("lost", None)


async def test_observations_before_the_acceptance_do_not_count(world: World) -> None:
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    watcher = world.watcher()
    job = Job("true")
    job.staged()
    await looks(clock, watcher, 100)
    world.accept(job, f"tidegate.{job.id}.a1.s1")
    await watcher.handle(job.again())
    await looks(clock, watcher, 59)
    assert await world.facts() == []


async def test_an_end_that_was_released_already_is_found_before_anything_is_lost(world: World) -> None:
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    job, submission = await world.ended("sh", "-c", "exit 3")
    await world.backend.client.release(submission)
    watcher = world.watcher()
    await watcher.handle(job.again())
    await looks(clock, watcher, 65)
    (fact,) = await world.facts()
    assert (fact.kind, fact.code) == ("exited", 3)


async def test_who_is_seen_again_after_a_loss_is_told_anew(world: World) -> None:
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    job, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    real = Observer(world.backend.client.root)
    hidden: list[bool] = []

    def observe() -> Observation:
        return Observation(complete=True, submissions=()) if hidden else real.observe()

    watcher = world.watcher(observe)

    async def none_found(*given: Any) -> tuple[()]:
        return ()

    watcher.eyes.find = none_found  # type: ignore[method-assign,assignment] # no record, released or not
    clock.advance(timedelta(seconds=1))
    await watcher.handle(job.again())
    await watcher.look()
    hidden.append(True)
    await looks(clock, watcher, 63)
    running, lost = await world.facts()
    assert (running.kind, lost.kind) == ("seen_running", "lost")
    hidden.clear()
    await looks(clock, watcher, 1)
    (again,) = await world.facts()
    assert again.kind == "seen_running"
    assert lost.version < again.version
    for fact in (running, lost, again):
        job.apply(fact)
    assert job.record.end_reason is None


async def test_an_attempt_that_is_over_is_not_waited_for(world: World) -> None:
    clock, watcher, job, submission = await gone(world)
    await watcher.handle(job.exited(submission))
    await looks(clock, watcher, 100)
    assert await world.facts() == []
    assert job.record.end_reason is not EndReason.LOST
