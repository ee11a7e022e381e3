"""After a restore of the database everything that runs, and everything that ended meanwhile, is told anew."""

from datetime import timedelta
from typing import Any

import pytest

from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.sightings import LocalState
from shared.runtime.clock import SystemClock
from tests.integration.watcher.test_losses import FOREVER
from tests.integration.watcher.world import World, blind


async def test_what_runs_and_what_was_released_since_are_told_in_the_new_epoch_and_then_it_is_in_step(
    world: World,
) -> None:
    running, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    ended, released = await world.ended("sh", "-c", "exit 3")
    unknown, forgotten = await world.ended("true")
    await world.watcher().look()
    before = {(fact.job, fact.kind): fact for fact in await world.facts()}
    assert {fact.version.epoch for fact in before.values()} == {1}
    await world.backend.client.release_all([released, forgotten])
    await world.database.execute("DELETE FROM sightings WHERE job = $1", unknown.id)
    await world.restored(2)
    await world.watcher().look()
    told = {(fact.job, fact.kind): fact for fact in await world.facts()}
    assert set(told) == {(running.id, "seen_running"), (ended.id, "exited"), (unknown.id, "exited")}
    for key, fact in told.items():
        assert fact.version.epoch == 2
        assert before[key].version < fact.version
        assert before[key].model_copy(update={"version": fact.version, "at": fact.at}) == fact
    assert not world.standing.restoring


async def test_what_cannot_be_observed_keeps_it_out_of_step(world: World) -> None:
    await world.restored(2)
    watcher = world.watcher(lambda: blind("open/ could not be read"))
    await watcher.look()
    assert world.standing.restoring


async def test_released_records_that_cannot_be_read_keep_it_out_of_step(world: World) -> None:
    released = world.backend.root / "released"
    released.rename(world.backend.root / "elsewhere")
    await world.restored(2)
    with pytest.raises(CouldNotAsk):
        await world.watcher().look()
    assert world.standing.restoring
    (world.backend.root / "elsewhere").rename(released)
    await world.watcher().look()
    assert not world.standing.restoring


async def test_an_observer_that_died_in_the_middle_is_followed_by_one_that_tells_the_rest(world: World) -> None:
    jobs = [await world.ended("true") for _ in range(3)]
    for _, submission in jobs:
        await world.backend.client.release(submission)
    await world.restored(2)
    first = world.watcher()
    tell = first.store.tell

    async def dies(*given: Any) -> int:
        await tell(*given)
        raise KeyboardInterrupt

    first.store.tell = dies  # type: ignore[method-assign,assignment] # it ends like a killed process
    with pytest.raises(KeyboardInterrupt):
        await first.look()
    assert world.standing.restoring
    await world.watcher().look()
    assert sorted(fact.job for fact in await world.facts()) == sorted(job.id for job, _ in jobs)
    assert not world.standing.restoring


async def test_what_was_released_long_before_the_backup_is_not_told_again(world: World) -> None:
    _, submission = await world.ended("true")
    await world.backend.client.release(submission)
    await world.restored(2, SystemClock().now() + timedelta(hours=2))
    await world.watcher().look()
    assert await world.facts() == []
    assert not world.standing.restoring


async def test_an_observer_that_another_has_followed_does_not_say_that_it_is_in_step(world: World) -> None:
    _, submission = await world.ended("true")
    await world.backend.client.release(submission)
    await world.restored(2)
    one = world.watcher(replica="one")
    await one.lease.keep(world.keeping)
    await world.hand_over()
    await world.watcher(replica="two").lease.keep(world.keeping)
    await one.observing.once()
    assert await world.facts() == []
    assert world.standing.restoring


async def test_a_question_is_answered_in_the_epoch_in_which_the_fact_was_told(world: World) -> None:
    job, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    await world.restored(2)
    watcher = world.watcher()
    await watcher.handle(job.again())
    await watcher.look()
    (told,) = await world.facts()
    await watcher.handle(job.again())
    assert await world.facts() == [told]
    assert told.version.epoch == 2
