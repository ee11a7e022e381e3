"""Several watchers: one observes for all, the others stand by and go on where it stopped."""

import math
from datetime import timedelta

from shared.backends.local.sightings import LocalState, Observation
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.audit import Audit
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.watcher.test_losses import FOREVER, gone, looks
from tests.integration.watcher.world import World


async def test_while_one_observes_the_other_tells_nothing(world: World) -> None:
    one, two = world.watcher(replica="one"), world.watcher(replica="two")
    await one.look()
    await world.ended("true")
    assert not await two.look()
    assert await world.facts() == []
    await one.look()
    assert [fact.kind for fact in await world.facts()] == ["exited"]


async def test_the_next_observer_tells_what_the_last_one_did_not_and_nothing_else(world: World) -> None:
    one, two = world.watcher(replica="one"), world.watcher(replica="two")
    await world.ended("true")
    await one.look()
    assert [fact.kind for fact in await world.facts()] == ["exited"]
    await world.ended("sh", "-c", "exit 3")
    await world.hand_over()
    await two.look()
    assert [(fact.kind, fact.code) for fact in await world.facts()] == [("exited", 3)]
    await one.look()
    await two.look()
    assert await world.facts() == []


async def test_an_observer_that_was_frozen_tells_nothing_of_what_it_saw_before(world: World) -> None:
    _, submission = await world.launched(*FOREVER)
    seen = await world.backend.until(submission, LocalState.RUNNING)
    one = world.watcher(lambda: Observation(complete=True, submissions=(seen,)), replica="one")
    two = world.watcher(replica="two")
    await one.lease.keep(world.keeping)
    await world.backend.client.kill(submission)
    await world.hand_over()
    await two.look()
    assert [fact.kind for fact in await world.facts()] == ["exited"]
    one.lease._until = math.inf  # it has just looked at the clock: only the database knows better
    await one.observing.once()
    assert await world.facts() == []


async def test_an_observer_that_was_frozen_loses_nobody(world: World) -> None:
    clock, one, _, _ = await gone(world)
    await looks(clock, one, 60)
    two = world.watcher(replica="two")
    await world.hand_over()
    await two.look()
    clock.advance(timedelta(seconds=4))
    await one.observing.once()
    assert await world.facts() == []
    await one.observing.keep()
    assert await world.database.fetchval("SELECT last_seen_at FROM watched") is None


async def test_the_next_observer_goes_on_counting_an_absence_but_not_the_time_between(world: World) -> None:
    clock, one, _, _ = await gone(world)
    last = clock.now()
    await looks(clock, one, 40)
    await one.keep()
    clock.advance(timedelta(minutes=10))
    await world.hand_over()
    two = world.watcher(replica="two")
    await looks(clock, two, 19)
    assert await world.facts() == []
    await looks(clock, two, 4)
    (fact,) = await world.facts()
    assert (fact.kind, fact.last_seen_at) == ("lost", last)


async def test_a_watcher_that_starts_again_every_minute_still_notices_a_loss(world: World) -> None:
    clock, watcher, _, _ = await gone(world)
    for _ in range(4):
        await looks(clock, watcher, 20)
        await watcher.keep()
        watcher = world.watcher()
    assert [fact.kind for fact in await world.facts()] == ["lost"]


async def test_who_is_alive_is_not_lost_by_a_takeover_whatever_was_counted_before(world: World) -> None:
    clock = FixedClock(SystemClock().now())
    world.clock = clock
    job, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    one = world.watcher(replica="one")
    await one.handle(job.again())
    await looks(clock, one, 3)
    await world.database.execute("UPDATE watched SET absent_ms = 59900")
    await world.hand_over()
    two = world.watcher(replica="two")
    await looks(clock, two, 70)
    assert [fact.kind for fact in await world.facts()] == ["seen_running"]
    await two.keep()
    assert await world.database.fetchval("SELECT absent_ms FROM watched") == 0


async def test_a_last_sighting_is_never_set_back(world: World) -> None:
    clock, one, _, _ = await gone(world)
    last = clock.now()
    await one.keep()
    clock.advance(-timedelta(seconds=30))
    two = world.watcher(replica="two")
    await world.hand_over()
    await two.look()
    await two.keep()
    assert await world.database.fetchval("SELECT last_seen_at FROM watched") == last


async def test_an_end_whose_event_was_lost_is_found_by_asking(world: World) -> None:
    clock, watcher, job, submission = await gone(world)
    asked: list[NewestAsked] = []
    job.exited(submission)  # and its event never comes

    async def ask(question: NewestAsked) -> NewestAnswer:
        asked.append(question)
        return NewestAnswer(events=(job.events[-1].decode(),))

    audit = Audit(watcher.store.open_since, watcher.events.audited, ask, clock)
    await audit.once()
    assert asked == []
    clock.advance(timedelta(minutes=11))
    await audit.once()
    assert asked == [NewestAsked(jobs=(job.id,))]
    assert await world.database.fetchval("SELECT over FROM watched")
    await audit.once()
    assert len(asked) == 1
    assert await world.facts() == []


async def test_silence_and_unknown_jobs_end_no_watch(world: World) -> None:
    clock, watcher, _, _ = await gone(world)

    async def nothing(_: NewestAsked) -> NewestAnswer:
        return NewestAnswer(events=())

    clock.advance(timedelta(minutes=11))
    await Audit(watcher.store.open_since, watcher.events.audited, nothing, clock).once()
    assert not await world.database.fetchval("SELECT over FROM watched")
