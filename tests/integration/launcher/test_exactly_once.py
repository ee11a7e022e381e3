"""A launcher dies anywhere between intent and record; another goes on; the command ran exactly once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.launcher.domain import Launch
from services.launcher.endings import asked, sealed
from services.launcher.outcomes import Later, Taken, apply
from services.launcher.store import Store
from shared.backends.local.client import LocalClient
from shared.lifecycle.facts import Accepted
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import AFTER_THE_LEASE, Launcher, World, kinds


class Killed(BaseException):
    """As kill -9: nothing of the launcher runs after it."""


def dies(at: str) -> tuple[type[Store], type[LocalClient]]:
    """Store and backend of a launcher that dies at this point."""

    class DyingStore(Store):
        async def apply(self, *given: Any) -> set[str]:
            done = await super().apply(*given)
            if at == "intent written, not committed":
                raise Killed
            return done

        async def claim_launches(self, *given: Any) -> Any:
            if at == "intent committed":
                raise Killed
            rows = await super().claim_launches(*given)
            if at == "submitting committed":
                raise Killed
            return rows

        async def record_launches(self, *given: Any) -> Any:
            if at == "backend answered":
                raise Killed
            rows = await super().record_launches(*given)
            if at == "recorded":
                raise Killed
            return rows

        async def _write(self, tx: Any, rows: Any) -> None:
            await super()._write(tx, rows)
            if at == "recorded, not committed" and rows and rows[0].state == "submitted":
                raise Killed

    class DyingBackend(LocalClient):
        async def launch(self, requests: Any) -> Any:
            if at == "before the backend was asked":
                raise Killed
            if at == "asked, no answer read":
                asking = asyncio.create_task(super().launch(requests))
                await asyncio.wait([asking])
                raise Killed
            return await super().launch(requests)

    return DyingStore, DyingBackend


POINTS = (
    "intent written, not committed",
    "intent committed",
    "submitting committed",
    "before the backend was asked",
    "asked, no answer read",
    "backend answered",
    "recorded, not committed",
    "recorded",
)


async def attempt(step: Callable[[], Awaitable[None]]) -> None:
    """Do it, unless the launcher dies of it."""
    try:
        await step()
    except Killed:
        return


@pytest.mark.parametrize("successor", ["the same replica, started again", "another replica, after the deadline"])
@pytest.mark.parametrize("point", POINTS)
async def test_it_runs_once_wherever_the_launcher_dies(world: World, point: str, successor: str) -> None:
    jobs = [await world.job() for _ in range(3)]
    store, backend = dies(point)
    first = world.launcher("one", store=store, backend=backend(world.backend.root))
    await attempt(lambda: first.launch(*(job.again() for job in jobs)))

    if successor.startswith("the same"):
        second = world.launcher("one")
        await second.start()
    else:
        world.clock = FixedClock(SystemClock().now() + AFTER_THE_LEASE)
        second = world.launcher("two")
        await second.store.take_over(world.clock.now(), at_start=False)
    await second.handle(*(job.again() for job in jobs))  # what was not acknowledged is delivered again
    for _ in range(3):
        await second.launching.once()

    told = await world.facts(*jobs)
    assert {fact.job for fact in told if fact.kind == "accepted"} == {job.id for job in jobs}
    assert len({(fact.job, fact.version.n) for fact in told}) == len(jobs)
    await world.until_ended(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


async def test_before_the_deadline_nobody_takes_over(world: World) -> None:
    job = await world.job()
    store, _ = dies("submitting committed")
    await attempt(lambda: world.launcher("one", store=store).launch(job.again()))
    other = world.launcher("two")
    await other.start()
    await other.launching.once()
    assert (await world.row(job))["state"] == "submitting"
    assert world.ledger(job) == []


async def test_an_answer_that_comes_after_the_lease_was_lost_is_dropped(world: World) -> None:
    job = await world.job()
    slow: list[Launcher] = []

    class Late(LocalClient):
        async def launch(self, requests: Any) -> Any:
            answers = await super().launch(requests)
            clock = SystemClock().now() + AFTER_THE_LEASE
            other = slow[1]
            await other.store.take_over(clock, at_start=False)
            other.launching._clock = FixedClock(clock)
            await other.launching.once()
            return answers

    slow += [world.launcher("one", backend=Late(world.backend.root)), world.launcher("two")]
    await slow[0].launch(job.again())
    assert kinds(await world.facts(job)) == ["accepted"]
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_a_late_answer_does_not_touch_the_lease_of_whoever_took_over(world: World) -> None:
    job = await world.job()
    later = FixedClock(SystemClock().now() + AFTER_THE_LEASE)
    first, second = world.launcher("one"), world.launcher("two")
    now = first.launching._clock.now()
    (row,) = await claimed(first, job, now)
    await second.store.take_over(later.now(), at_start=False)
    (again,) = await second.store.claim_launches(10, "second", later.now() + timedelta(seconds=15), later.now())
    unclear = apply(row, Later("no answer came", absent=False), later.now())
    assert await first.store.record_launches([unclear], "first") == []
    assert (await world.row(job))["token"] == "second"
    taken = apply(again, Taken(later.now()), later.now())
    await second.store.record_launches([taken], "second")
    assert kinds(await world.facts(job)) == ["accepted"]


async def claimed(launcher: Launcher, job: Job, now: datetime) -> list[Launch]:
    """The job's launch, leased under the token `first`."""
    await launcher.handle(job.again())
    now += timedelta(seconds=1)
    return await launcher.store.claim_launches(10, "first", now + timedelta(seconds=1), now)


async def test_two_launchers_on_the_same_batch_launch_once(world: World) -> None:
    for _ in range(5):
        jobs = [await world.job() for _ in range(10)]
        deliveries = [job.again() for job in jobs]
        launchers = [world.launcher("one"), world.launcher("two")]
        await asyncio.gather(*(launcher.handle(*deliveries) for launcher in launchers))
        await asyncio.gather(*(launcher.launching.once() for launcher in launchers))
        told = await world.facts(*jobs)
        assert {fact.job for fact in told} == {job.id for job in jobs}
        assert len({(fact.job, fact.version.n) for fact in told}) == len(jobs)
        await world.until_ended(*jobs)
        assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


async def test_a_row_that_changed_since_it_was_read_is_decided_again(world: World) -> None:
    job = await world.job("sleep", "60")
    launcher, rival = world.launcher("one"), world.launcher("two")
    await launcher.launch(job.again())
    await world.facts(job)
    gently = job.stop(grace_seconds=3600)
    by_force = job.stop(force=True)

    class Overtaken(Store):
        async def read_jobs(self, jobs: Any) -> Any:
            read = await super().read_jobs(jobs)
            await rival.handle(by_force)
            return read

    await world.launcher("one", store=Overtaken).handle(gently)
    row = await world.row(job)
    assert (row["state"], row["seq"], row["grace_seconds"]) == ("revoking", job.record.seq, 0)


async def test_two_launchers_seal_the_same_batch_once(world: World) -> None:
    jobs = [await world.job("true") for _ in range(20)]
    one, two = world.launcher("one"), world.launcher("two")
    await one.launch(*(job.again() for job in jobs))
    await world.until_ended(*jobs)
    await world.facts(*jobs)
    ends = [job.exited(world.submission(job)) for job in jobs]
    await asyncio.gather(one.handle(*ends), two.handle(*ends))
    await world.database.execute("UPDATE launches SET next_at = now()")
    await asyncio.gather(one.ending.once(), two.ending.once())
    await world.facts(*jobs)
    ids = [row["msg_id"] for row in await world.database.fetch("SELECT msg_id FROM outbox")]
    sealed = [msg_id for msg_id in ids if "/launcher_sealed/" in msg_id and "/again." not in msg_id]
    assert len(sealed) == len(set(sealed)) == len(jobs)


async def test_a_vote_that_was_given_meanwhile_is_not_given_again(world: World) -> None:
    job = await world.job()
    one, two = world.launcher("one"), world.launcher("two")
    await one.handle(job.stop())
    now = SystemClock().now()
    mine = await one.store.claim_endings(10, now, now)
    theirs = await two.store.claim_endings(10, now, now)
    assert mine[0].key == theirs[0].key
    assert await one.store.record_endings([sealed(row, ran=False, now=now) for row in mine])
    assert await two.store.record_endings([sealed(row, ran=True, now=now) for row in theirs]) == []
    assert kinds(await world.facts(job)) == ["gpus_freed", "launcher_sealed"]
    assert (await world.row(job))["ran"] is False


async def test_a_shorter_grace_that_comes_while_the_launcher_looks_is_not_lost(world: World) -> None:
    job = await world.job("sleep", "60")
    launcher = world.launcher()
    await launcher.launch(job.again())
    await launcher.handle(job.stop(grace_seconds=3600))
    now = SystemClock().now()
    looking = await launcher.store.claim_endings(10, now + timedelta(seconds=15), now)
    await launcher.handle(job.stop(force=True))
    await launcher.store.record_endings([asked(row, 3600, now) for row in looking])
    row = await world.row(job)
    assert (row["grace_seconds"], row["stop_asked_grace"]) == (0, 3600)
    assert row["next_at"] <= SystemClock().now()


async def test_a_host_that_cannot_be_reached_keeps_the_job_and_launches_it_once_it_is_back(world: World) -> None:
    job = await world.job()
    world.backend.kill_host()
    launcher = world.launcher()
    await launcher.launch(job.again())
    row = await world.row(job)
    assert (row["state"], row["asked"]) == ("intent", True)
    assert "does not run" in row["waits_for"] or "could not be asked" in row["waits_for"]
    await world.backend.start_host("--virtual-gpus", "8")
    while not await world.facts(job):
        await launcher.launching.once()
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_what_the_backend_has_already_is_adopted_with_its_own_time(world: World) -> None:
    job = await world.job()
    store, _ = dies("backend answered")
    await attempt(lambda: world.launcher("one", store=store).launch(job.again()))
    await world.until_ended(job)
    (seen,) = world.backend.observer.observe().submissions
    second = world.launcher("one")
    await second.start()
    await second.launching.once()
    (accepted,) = await world.facts(job)
    assert isinstance(accepted, Accepted)
    assert seen.spec is not None
    assert accepted.segment.created_at == seen.spec.accepted_at
    assert world.ledger(job) == [job.id]
