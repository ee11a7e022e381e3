"""Deleted jobs: outputs and files go, what fences their attempts stays for the restore window, then all of it goes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from services.stager import deletion
from services.stager.deletion import Deletions
from services.stager.marks import Mark
from services.stager.removal import remove_attempts
from services.stager.underway import Trace, Underway
from shared.backends.local import layout
from shared.backends.local.names import submission_name
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from tests.integration.stager.conftest import TENANT, World, eventually, now, tree
from tests.integration.stager.test_events import rows


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_BUSY_SECONDS", 0.1)


async def ended(world: World) -> str:
    """A job that has run, with an output; its attempt's directory holds a claim."""
    job = await world.submit("true", outputs=("out/**",))
    await world.told_of(job, "staged")
    here = world.workdir(job)
    tree(here, {"out/r": "result", "scratch/s": "1"})
    tree(here.parent, {"claim": "{}", "logs/stdout": "said", "home/.cache": "2"})
    await world.ran(job)
    await world.told_of(job, "staging_sealed")
    await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
    return job


async def delete(world: World, job: str) -> None:
    await world.move(job, i.Delete(actor="rin", at=now()))
    assert world.records[job].deleted


def attempts(world: World, job: str) -> Path:
    return world.root / "work" / TENANT / job


def outputs(world: World, job: str) -> Path:
    return world.blobs / TENANT / "outputs" / job


def files(folder: Path) -> set[str]:
    """Of a tree that somebody removes meanwhile."""
    return {os.path.relpath(os.path.join(here, name), folder) for here, _, names in os.walk(folder) for name in names}


def is_cleared(world: World, job: str) -> bool:
    return not outputs(world, job).exists() and files(attempts(world, job)) == {"a1/claim"}


@asynccontextmanager
async def database(world: World) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        yield connection
    finally:
        await connection.close()


async def deletions(world: World) -> list[asyncpg.Record]:
    async with database(world) as connection:
        return list(await connection.fetch("SELECT * FROM stager.deletions"))


async def test_its_files_go_at_once_its_claim_and_rows_after_the_restore_window(world: World) -> None:
    async with world.stager():
        job, other = await ended(world), await ended(world)
        await delete(world, job)
        await eventually(lambda: is_cleared(world, job), "outputs and files to go, and the claim to stay")

        async def marked() -> bool:
            return (await deletions(world))[0]["cleared_at"] is not None

        await eventually(marked, "that to be noted")
        assert [row["job"] for row in await rows(world)] == [job, other]
        async with database(world) as connection:
            left = await connection.fetchval("SELECT due_at - deleted_at FROM stager.deletions")
            assert left.total_seconds() == 7 * 86_400
            await connection.execute("UPDATE stager.deletions SET due_at = now()")

        async def forgotten() -> bool:
            return [row["job"] for row in await rows(world)] == [other] and not await deletions(world)

        await eventually(forgotten, "all of it to go when the window is over")
        assert not attempts(world, job).exists()
        assert files(outputs(world, other)), "another job's stay"
        assert files(attempts(world, other)) >= {"a1/claim", "a1/e1/out/r", "a1/logs/stdout"}
        assert await world.outputs(other) is not None


async def test_nothing_goes_while_something_of_it_may_still_run_or_be_written(world: World) -> None:
    async with world.stager():
        launched, copied = await ended(world), await ended(world)
        name = layout.record_path("", submission_name("d", launched, 1, "t"), layout.SPEC)
        tree(world.root, {name.lstrip("/"): "{}"})
        with Underway(str(world.root)).work() as held:
            held.add(Trace(TENANT, copied, 1, Mark(1, 1)))
            for job in (launched, copied):
                await delete(world, job)
            free = await ended(world)
            await delete(world, free)
            await eventually(lambda: is_cleared(world, free), "another job's files to go")
            for job in (launched, copied):
                assert files(outputs(world, job))
                assert "a1/e1/out/r" in files(attempts(world, job))
        os.unlink(f"{world.root}{name}")
        for job in (launched, copied):
            await eventually(lambda: is_cleared(world, job), "its files to go now")  # noqa: B023 # awaited in the loop


async def test_a_sweep_goes_on_where_it_was_killed_and_two_share_the_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.stager():
        jobs = [await ended(world) for _ in range(3)]
    for job in jobs:
        tree(attempts(world, job), {f"a1/e1/d{n}/f": "x" for n in range(10)})
    monkeypatch.setattr(deletion, "_LEASE_SECONDS", 0.0)
    monkeypatch.setattr(deletion, "_ENTRIES_AT_ONCE", 8)
    whole = remove_attempts
    calls = 0

    def killed_now_and_then(*arguments: object) -> bool:
        """It dies after a piece, before that is noted anywhere."""
        nonlocal calls
        calls += 1
        done = whole(*arguments)  # type: ignore[arg-type] # passed on as they came
        if calls in (2, 5):
            raise RuntimeError
        return done

    monkeypatch.setattr(deletion, "remove_attempts", killed_now_and_then)
    async with world.stager(), world.stager(TIDEGATE_REPLICA="two"):
        for job in jobs:
            await delete(world, job)
        await eventually(lambda: all(is_cleared(world, job) for job in jobs), "all files to go")
    assert calls > 10


async def test_what_one_replica_has_taken_no_other_takes_before_its_time_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion.Deletion, "once", lambda sweep: asyncio.sleep(0))
    async with world.stager() as service, database(world) as connection:
        await connection.execute("INSERT INTO stager.deletions (job, tenant) VALUES ('j1', 'acme')")
        takes = await asyncio.gather(*(Deletions(service.db).take() for _ in range(5)))
        assert [deleted.job for taken in takes for deleted in taken] == ["j1"]
        await connection.execute("UPDATE stager.deletions SET due_at = now()")
        assert [deleted.job for deleted in await Deletions(service.db).take()] == ["j1"], "it is due, so the other died"


async def test_who_was_too_slow_does_not_end_the_restore_window_of_what_another_has_cleared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_LEASE_SECONDS", 0.0)
    monkeypatch.setattr(deletion.Deletion, "once", lambda sweep: asyncio.sleep(0))
    async with world.stager() as service, database(world) as connection:
        await connection.execute("INSERT INTO stager.deletions (job, tenant) VALUES ('j1', 'acme')")
        rows = Deletions(service.db)
        (slow,), (fast,) = await rows.take(), await rows.take()
        await rows.cleared(fast.job, 86_400)
        await rows.later(slow, 0)
        assert await rows.take() == []


async def test_late_news_of_a_deleted_job_begin_nothing(world: World) -> None:
    async with world.stager():
        job = await ended(world)
        failed = world.records[job].model_copy(update={"state": State.FAILED})
        world.records[job] = failed
        again = _next_attempt(failed)
        await delete(world, job)
        await eventually(lambda: is_cleared(world, job), "its files to go")
        await world.publish(job, record=again)
        other = await world.submit("true")
        await world.told_of(other, "staged")
        assert [row["attempt"] for row in await rows(world) if row["job"] == job] == [1]
        assert is_cleared(world, job)


def _next_attempt(record: JobRecord) -> JobRecord:
    """The record of a retry that the deletion overtook."""
    attempt = record.current.model_copy(update={"number": 2, "evidence": (), "sealed": False, "admission": 2})
    return record.model_copy(update={"attempt": 2, "attempts": (attempt,), "state": State.SUBMITTED})


async def test_a_deleted_jobs_outputs_are_not_shown_any_more(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
        assert world.records[job].state == "SUCCEEDED"
        assert await world.outputs(job) is not None
        await world.move(job, i.Delete(actor="rin", at=now()))

        async def hidden() -> bool:
            return await world.outputs(job) is None

        await eventually(hidden, "its outputs to be hidden")
    (row,) = await rows(world)
    assert row["deleted_at"] is not None
