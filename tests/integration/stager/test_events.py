"""Job events: repeated, late, out of order, contradicting work under way."""

import asyncio
import os
import time
from pathlib import Path

import asyncpg
import pytest

from services.stager.blobs import GoOn
from services.stager.copying import Copying
from services.stager.domain import Stage
from services.stager.facts import Result
from services.stager.leases import Claim, Leases
from services.stager.staging import Staging
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.runtime.migrate import differences
from tests.integration.stager.conftest import World, eventually, listing, now, tree
from tests.patience import PATIENCE_SECONDS


async def rows(world: World) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        return list(await connection.fetch("SELECT * FROM stager.staging ORDER BY job, attempt"))
    finally:
        await connection.close()


def stop() -> i.Stop:
    return i.Stop(actor="rin", at=now())


async def test_the_tables_are_as_declared(world: World) -> None:
    assert await differences("stager", world.database.owner_url) == []


async def test_the_same_event_again_is_answered_with_the_same_facts_under_new_ids(world: World) -> None:
    world.applies = False
    async with world.stager():
        job = await world.submit("true")
        await world.told_of(job, "staged")
        for count in (2, 3):
            await world.publish(job)
            await world.told_of(job, "staged", count)
    first, *again = world.facts(job, "staged")
    assert again == [first, first]
    assert len(set(world.ids)) == len(world.ids)
    assert len(world.facts(job, "input_valid")) == 3


async def test_a_repeated_event_begins_nothing_twice(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"run.sh": "#!/bin/sh\n"}))
    job = world.record("sh", "run.sh", snapshot=digest, outputs=("x",))
    await world.publish_all([world.records[job]] * 20)
    async with world.stager():
        await world.told_of(job, "staged")
        await eventually(lambda: world.workdir(job).parent, "the directory")
        assert [path.name for path in world.workdir(job).parent.iterdir()] == ["e1"]
    versions = {fact.version.n for fact in world.facts(job, "staged")}
    assert len(versions) == 1


async def test_a_late_event_of_an_older_record_changes_nothing(world: World) -> None:
    job = world.record("true", outputs=("x",))
    early = world.records[job]
    async with world.stager():
        await world.publish(job)
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        count = len(world.told)
        await world.publish(job, record=early)
        other = await world.submit("true")
        await world.told_of(other, "staged")
        assert len([fact for fact in world.told if fact.job == job]) == count


async def test_a_stop_before_anything_was_staged_is_a_vote(world: World) -> None:
    job = world.record("true")
    world.apply(job, [stop()])
    async with world.stager():
        await world.publish(job, "desired")
        sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.staged, sealed.outcome) == (False, "none")
    assert world.records[job].state == "STOPPED"


async def test_a_directory_made_while_another_replica_voted_is_taken_away(world: World) -> None:
    job = world.record("true")
    early = world.records[job]
    world.apply(job, [stop()])
    async with world.stager():
        await world.publish(job, "desired")
        await world.told_of(job, "staging_sealed")
        directory = world.workdir(job, 1)
        directory.mkdir(parents=True)
        await world.publish(job, record=early)
        await eventually(lambda: not directory.exists(), "the directory to be taken away")


async def test_a_stop_while_staged_is_on_its_way_never_says_that_nothing_was_staged(world: World) -> None:
    """`api` has not seen `staged` when it asks for the vote."""
    world.applies = False
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        await world.move(job, stop())
        while len(world.facts(job, "staged")) < 2:  # in one batch with the event that it repeats, a question is none
            await world.publish(job, "desired")
            await asyncio.sleep(0.05)
        assert world.facts(job, "staging_sealed") == []
        world.applies = True
        await world.move(job, *world.facts(job, "input_valid")[:1], *world.facts(job, "staged")[:1])
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=False))
        sealed = await world.told_of(job, "staging_sealed")
        assert sealed.staged
    assert world.records[job].state == "STOPPED"


class Slowly:
    """Staging that takes as long as a test wants, at its end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        whole = Staging.run

        def slow(staging: Staging, *arguments: object) -> object:
            outcome = whole(staging, *arguments)  # type: ignore[arg-type] # passed on as they came
            loop.call_soon_threadsafe(self.begun.set)
            asyncio.run_coroutine_threadsafe(self.may_end.wait(), loop).result(PATIENCE_SECONDS)
            return outcome

        patch.setattr(Staging, "run", slow)


async def test_work_that_takes_longer_than_its_lease_keeps_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager(TIDEGATE_STAGING_LEASE_SECONDS="4") as service:
        job = await world.submit("true", snapshot=digest)
        await slowly.begun.wait()
        (first,) = await rows(world)

        async def renewed_beyond() -> bool:
            (row,) = await rows(world)
            assert row["lease_epoch"] == first["lease_epoch"], "it was taken away"
            return bool((row["deadline"] - first["deadline"]).total_seconds() > 4)

        await eventually(renewed_beyond, "the lease to be held beyond its first end")
        rival = Leases(service.db, service.clock, replica="rival", lease_seconds=1, epoch=lambda: 1)
        assert await rival.claim(Stage.STAGE_IN, 10) == []
        slowly.may_end.set()
        await world.told_of(job, "staged")


async def test_plain_jobs_do_not_wait_for_long_work(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager(TIDEGATE_STAGING_WORKERS="40"):
        long = [await world.submit("true", snapshot=digest) for _ in range(40)]
        await eventually(lambda: all(world.workdir(job, 1).exists() for job in long), "all workers to be busy")
        plain = await world.submit("true")
        await world.told_of(plain, "staged")
        assert not world.facts(long[0], "staged")
        slowly.may_end.set()
        await world.told_of(long[-1], "staged")


async def test_after_the_vote_work_under_way_publishes_nothing_and_is_cleared(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager():
        job = await world.submit("true", snapshot=digest)
        await slowly.begun.wait()
        await world.move(job, stop())
        await world.told_of(job, "staging_sealed")
        await eventually(lambda: world.workdir(job, 1).exists(), "the worker to be nearly done")
        slowly.may_end.set()
        await eventually(lambda: not world.workdir(job, 1).exists(), "its directory to be cleared")
    assert world.facts(job, "staged") == []
    (row,) = await rows(world)
    assert (row["stage"], row["directory"]) == ("sealed", None)


async def test_a_newer_attempt_ends_the_older_one(world: World) -> None:
    async with world.stager():
        world.answers_specs = False
        job = await world.submit("true")
        await eventually(lambda: has_rows(world, 1), "the first attempt's row")
        newer = world.records[job].model_copy(
            update={"attempt": 2, "attempts": (world.records[job].current.model_copy(update={"number": 2}),), "seq": 9}
        )
        world.answers_specs = True
        world.records[job] = newer
        await world.publish(job)
        staged = await world.told_of(job, "staged")
        assert staged.attempt == 2
    assert [(row["attempt"], row["stage"]) for row in await rows(world)] == [(1, "over"), (2, "sealed")]
    assert {fact.attempt for fact in world.told} == {2}


async def test_copies_of_a_job_that_is_deleted_meanwhile_are_cleared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loop, whole = asyncio.Event(), asyncio.get_running_loop(), Copying.run

    def endless(copying: Copying, claim: Claim, patterns: tuple[str, ...], go_on: GoOn, *, last_try: bool) -> Result:
        whole(copying, claim, patterns, go_on, last_try=last_try)
        loop.call_soon_threadsafe(begun.set)
        while True:
            go_on()
            time.sleep(0.01)

    monkeypatch.setattr(Copying, "run", endless)
    async with world.stager(TIDEGATE_STAGING_LEASE_SECONDS="1"):
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await begun.wait()
        assert listing(world.blobs / "acme/outputs")
        world.records[job] = world.records[job].model_copy(update={"deleted": True, "seq": 99})
        await world.publish(job, "deleted")
        copies = world.blobs / "acme/outputs"
        await eventually(lambda: not any(names for _, _, names in os.walk(copies)), "the copies to be cleared")


async def has_rows(world: World, count: int) -> bool:
    return len(await rows(world)) == count


async def test_outputs_are_shown_to_their_tenant_only(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        assert await world.outputs(job) is not None
        assert await world.outputs(job, tenant="rival") is None
        assert await world.outputs("j" + "0" * 26) is None


async def test_without_an_answer_from_api_staging_waits_and_goes_on(world: World) -> None:
    world.answers_specs = False
    async with world.stager():
        plain = await world.submit("true")
        await eventually(lambda: has_rows(world, 1), "the row")
        assert world.told == []
        world.answers_specs = True
        await world.told_of(plain, "staged")
    (row,) = await rows(world)
    assert (row["stage"], row["owner"]) == ("sealed", None)


async def test_an_attempt_whose_events_were_lost_is_asked_about(world: World) -> None:
    async with world.stager(TIDEGATE_STAGING_AUDIT_SECONDS="1"):
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        segment = f.SegmentKey(submission="s", created_at=now())
        took = f.Accepted(**world.heading(job, 10), segment=segment, backend="local", cluster="local", ref="s")
        ended = f.Exited(**world.heading(job, 11), segment=segment, code=0, ended_at=now(), raw_state="exited")
        world.apply(job, [took, ended])
        sealed = await world.told_of(job, "staging_sealed")
    assert sealed.outcome == "verified"
