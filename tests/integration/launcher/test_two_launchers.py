"""Two replicas of the launcher: one is frozen in the middle of something and goes on when the other has done it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from shared.backends.local.client import LocalClient
from shared.backends.local.messages import LaunchAnswer, LaunchKind
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.launcher.test_ending import READY, is_alive, running
from tests.integration.launcher.world import AFTER_THE_LEASE, Launcher, World, kinds


class Frozen(LocalClient):
    """A launcher's way to the backend: frozen before it asks, until somebody lets it go on."""

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        self.is_frozen = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.answers: list[LaunchAnswer] = []

    async def launch(self, requests: Any) -> list[LaunchAnswer]:
        self.is_frozen.set()
        await self.goes_on.wait()
        self.answers = await super().launch(requests)
        return self.answers


async def frozen(world: World, job: Job) -> tuple[Frozen, "asyncio.Task[float | None]"]:
    """Replica `one`, frozen between its lease and its question."""
    way = Frozen(world.backend.root)
    one = world.launcher("one", backend=way)
    await one.handle(job.again())
    asking = asyncio.create_task(one.launching.once())
    await way.is_frozen.wait()
    return way, asking


async def successor(world: World) -> Launcher:
    """Replica `two`, once the lease of `one` is over."""
    clock = FixedClock(SystemClock().now() + AFTER_THE_LEASE)
    two = world.launcher("two")
    two.events._clock = two.launching._clock = two.ending._clock = clock
    await two.store.take_over(clock.now(), at_start=False)
    return two


async def test_it_asks_late_for_what_runs_and_is_told_so(world: World) -> None:
    job = await world.job()
    way, asking = await frozen(world, job)
    two = await successor(world)
    await two.launching.once()
    way.goes_on.set()
    await asking
    assert [answer.kind for answer in way.answers] == [LaunchKind.ALREADY]
    assert kinds(await world.facts(job)) == ["accepted"]
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_it_asks_late_for_what_has_ended_and_been_released(world: World) -> None:
    job = await world.job()
    way, asking = await frozen(world, job)
    two = await successor(world)
    await two.launching.once()
    await world.until_ended(job)
    await two.end(job.exited(world.submission(job)))
    assert (await world.row(job))["released"]
    way.goes_on.set()
    await asking
    assert [answer.kind for answer in way.answers] == [LaunchKind.ALREADY]
    row = await world.row(job)
    assert (row["state"], row["ran"]) == ("sealed", True)
    assert world.ledger(job) == [job.id]


async def test_it_asks_late_for_what_was_stopped_before_it_ran(world: World) -> None:
    job = await world.job()
    way, asking = await frozen(world, job)
    two = await successor(world)
    await two.end(job.stop())
    assert kinds(await world.facts(job)) == ["gpus_freed", "launcher_sealed"]
    way.goes_on.set()
    await asking
    assert [(answer.kind, answer.reason) for answer in way.answers] == [(LaunchKind.REFUSED, "revoked")]
    assert await world.facts(job) == []
    assert (await world.row(job))["state"] == "sealed"
    assert world.ledger(job) == []


async def test_it_asks_after_its_own_deadline_and_is_refused(world: World) -> None:
    job = await world.job()
    way = Frozen(world.backend.root)
    one = world.launcher("one", backend=way)
    await one.handle(job.again())
    one.launching._clock = FixedClock(SystemClock().now() - AFTER_THE_LEASE)  # its lease is over in real time
    await world.database.execute("UPDATE launches SET next_at = now() - interval '1 hour'")
    way.goes_on.set()
    await one.launching.once()
    assert [(answer.kind, answer.reason) for answer in way.answers] == [(LaunchKind.REFUSED, "too_late")]
    assert world.ledger(job) == []
    two = await successor(world)
    await two.launching.once()
    assert kinds(await world.facts(job)) == ["accepted"]
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_it_votes_late_and_the_vote_that_was_given_stays(world: World) -> None:
    one = world.launcher("one")
    job = await running(world, one, READY)
    await one.handle(job.stop(force=True))
    take, goes_on, is_frozen = one.ending._take, asyncio.Event(), asyncio.Event()

    async def freezes(row: Any, step: Any) -> Any:
        is_frozen.set()
        await goes_on.wait()
        return await take(row, step)

    one.ending._take = freezes  # type: ignore[method-assign] # as SIGSTOP would
    ending = asyncio.create_task(one.ending.once())
    await is_frozen.wait()
    await world.database.execute("UPDATE launches SET next_at = now()")  # the time for which `one` had it is over
    told = await world.until_sealed(world.launcher("two"), job)
    assert kinds(told) == ["gpus_freed", "launcher_sealed"]
    goes_on.set()
    await ending
    assert await world.facts(job) == []
    assert (await world.row(job))["state"] == "sealed"


async def test_only_a_replica_of_the_same_name_takes_back_at_its_start(world: World) -> None:
    launching, ending = await world.job(), await world.job()
    one = world.launcher("one")
    await one.handle(launching.again(), ending.stop())
    now = SystemClock().now()
    await one.store.claim_launches(10, "token", now + timedelta(seconds=15), now)
    await one.store.claim_endings(10, now + timedelta(seconds=15), now)
    for name, state in (("two", "submitting"), ("one", "intent")):
        await world.launcher(name).start()
        assert (await world.row(launching))["state"] == state
        assert ((await world.row(ending))["next_at"] <= SystemClock().now()) == (name == "one")


async def test_two_sweeps_at_once_kill_what_is_sealed_and_alive(world: World) -> None:
    one, two = world.launcher("one"), world.launcher("two")
    job = await running(world, one, READY)
    await world.database.execute(
        "UPDATE launches SET state = 'sealed', sealed_n = 99, sealed_at = now(), ran = false WHERE job = $1", job.id
    )
    await asyncio.gather(one.sweep.once(), two.sweep.once())
    assert not is_alive(world, job)
    assert sum(await asyncio.gather(one.sweep.once(), two.sweep.once())) == 0
    assert world.backend.observer.observe().submissions == ()
    assert await world.facts(job) == []


@pytest.mark.parametrize("point", ["spawn.before", "spawn.after"])
async def test_the_host_is_killed_while_it_is_asked_and_each_job_runs_once(world: World, point: str) -> None:
    world.backend.end_host()
    places = world.backend.use_failpoints()
    await world.backend.start_host("--virtual-gpus", "8")
    places.arm(f"runner.{point}", "kill 3")
    jobs = [await world.job() for _ in range(5)]
    launcher = world.launcher()
    await launcher.launch(*(job.again() for job in jobs))
    assert places.obeyed(f"runner.{point}")
    world.backend.end_host()
    await launcher.launch()
    await world.backend.start_host("--virtual-gpus", "8")
    told: list[Any] = []
    while len(told) < len(jobs):
        await launcher.launching.once()
        told += await world.facts(*jobs)
    assert kinds(told) == ["accepted"] * len(jobs)
    await world.until_ended(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]
