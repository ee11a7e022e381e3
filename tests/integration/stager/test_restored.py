"""The database was taken back in time: what ran meanwhile is not staged again, and what was copied back counts."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from tests.integration.stager.conftest import World, eventually, listing, now, tree

_FORGET = """
UPDATE stager.staging SET
    stage = 'stage_in', directory = NULL, manifest = NULL, facts = '[]', succeeded = NULL, tries = 0, due_at = now()
"""
_RESTORED = "UPDATE stager.standing SET epoch = 2, restoring = true, backup_at = $1"


async def taken_back(world: World) -> None:
    """The slice is as it was when the jobs had only just been heard of."""
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        await connection.execute(_FORGET)
        await connection.execute(_RESTORED, now() + timedelta(seconds=1))
    finally:
        await connection.close()
    world.restoring = True


async def rows(world: World) -> Sequence[asyncpg.Record]:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        return list(await connection.fetch("SELECT * FROM stager.staging ORDER BY job, attempt"))
    finally:
        await connection.close()


async def stages(world: World) -> list[str]:
    return [row["stage"] for row in await rows(world)]


def raised(world: World, job: str) -> None:
    """`api` has given the record a version of the new epoch."""
    record = world.records[job]
    world.records[job] = record.model_copy(update={"epoch": 2, "seq": record.seq + 1})


async def test_an_attempt_whose_outputs_came_back_in_the_lost_time_is_not_staged_again(world: World) -> None:
    async with world.stager():
        running, ended = [await world.submit("true", outputs=("x",)) for _ in range(2)]
        for job in (running, ended):
            await world.told_of(job, "staged")
            tree(world.workdir(job), {"x": "1"})
            (world.workdir(job).parent / "claim").write_text("{}")
        await world.ran(ended)
        await world.told_of(ended, "staging_sealed")
    manifest = world.facts(ended, "staging_sealed")[-1].manifest
    directory = world.workdir(running)
    await taken_back(world)
    told = len(world.told)
    for job in (running, ended):
        raised(world, job)
    async with world.stager():
        await world.publish(running, "reset")
        plain = await world.submit("true")

        async def heard() -> bool:
            return len(await stages(world)) == 3

        await eventually(heard, "the stager to have heard of them")
        stage = {row["job"]: row["stage"] for row in await rows(world)}
        assert (stage[running], stage[plain]) == ("staged", "stage_in")
        world.restoring = False

        async def known() -> bool:
            return sorted(await stages(world)) == ["sealed", "sealed", "staged"]

        await eventually(known, "the rows to say what the records say")
        outputs = await world.outputs(ended)
        assert outputs is not None
        assert f"{outputs.prefix.removesuffix('/')}.manifest.json" == manifest
        await world.ran(running)
        sealed = await world.told_of(running, "staging_sealed")
    assert (sealed.outcome, sealed.version.epoch) == ("verified", 2)
    assert sealed.manifest.startswith(f"acme/outputs/{running}/a1-e2."), "no name of the lost time is used again"
    assert listing(directory) == {"x": b"1"}
    assert [fact.kind for fact in world.told[told:] if fact.job != plain] == ["staging_sealed"]


async def test_while_restoring_nothing_is_staged_in(world: World) -> None:
    await taken_back(world)
    async with world.stager():
        waiting = world.record("true", outputs=("x",))
        world.apply(waiting, [i.Stop(actor="rin", at=now())])
        world.apply(waiting, [f.StagingSealed(**world.heading(waiting, 2), staged=False, outcome="none")])
        world.apply(waiting, [i.Retry(actor="rin", at=now())])
        world.apply(waiting, [f.Admitted(**world.heading(waiting, 3), admission=2)])
        await world.publish(waiting)  # a second attempt with outputs is work for a worker
        plain = await world.submit("true")

        async def heard() -> bool:
            return await stages(world) == ["stage_in", "stage_in"]

        await eventually(heard, "the stager to have heard of them")
        assert [row["owner"] for row in await rows(world)] == [None, None]
        world.restoring = False
        await world.told_of(plain, "staged")
        staged = await world.told_of(waiting, "staged")
    assert staged.version.epoch == 2
    assert staged.directory.endswith("/a2/e2.1")


async def test_where_only_the_claim_remembers_the_run_its_directory_is_told(world: World) -> None:
    """The broker's store was lost, too: no record knows that the attempt was staged."""
    world.applies = False
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
    directory = world.workdir(job)
    tree(directory, {"x": "1"})
    (directory.parent / "claim").write_text('{"submission": "s1"}')
    (world.root / "open" / "s1.spec.json").write_text(f'{{"directory": "{directory.name}"}}')
    await taken_back(world)
    raised(world, job)
    world.applies, world.restoring = True, False
    async with world.stager():
        staged = await world.told_of(job, "staged", 2)
        assert (staged.version.epoch, world.root / staged.directory) == (2, directory)
        await world.ran(job)
        sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.outcome, sealed.files) == ("verified", 1)


async def deleted_rows(world: World) -> None:
    """The slice is as it was before the jobs were heard of."""
    await taken_back(world)
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        await connection.execute("DELETE FROM stager.staging")
    finally:
        await connection.close()


def ran_in(world: World, directory: Path, *, released: bool = False) -> None:
    """The attempt's command has begun there."""
    (directory.parent / "claim").write_text('{"submission": "s1"}')
    folder = world.root / ("released/2026-11-30" if released else "open")
    folder.mkdir(exist_ok=True)
    (folder / "s1.spec.json").write_text(f'{{"directory": "{directory.name}"}}')


def areas(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.parent.iterdir() if entry.name.startswith("e"))


@pytest.mark.parametrize("released", [False, True], ids=["running", "ended and released"])
async def test_for_a_job_without_files_that_ran_in_the_lost_time_no_second_directory_is_made(
    world: World, released: bool
) -> None:
    world.applies = False
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
    directory = world.workdir(job)
    ran_in(world, directory, released=released)
    await deleted_rows(world)
    raised(world, job)
    async with world.stager():
        await world.publish(job)

        async def heard() -> bool:
            return await stages(world) == ["stage_in"]

        await eventually(heard, "the stager to have heard of it")
        assert areas(directory) == ["e1"]
        world.restoring = False
        staged = await world.told_of(job, "staged", 2)
    assert world.root / staged.directory == directory
    assert areas(directory) == ["e1"]


async def test_what_the_lost_time_staged_and_nobody_ran_in_is_swept(world: World) -> None:
    world.applies = False
    async with world.stager():
        job = await world.submit("true")
        await world.told_of(job, "staged")
    directory = world.workdir(job)
    await deleted_rows(world)
    raised(world, job)
    world.restoring = False
    async with world.stager():
        in_step = await world.submit("true")
        await world.told_of(in_step, "staged")
        await world.publish(job)
        await world.told_of(job, "staged", 2)
    assert areas(directory) == ["e2.1"]


async def test_outputs_come_from_the_directory_in_which_the_claim_has_run_and_the_other_one_goes(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        told = world.root / (await world.told_of(job, "staged")).directory
        used = tree(told.parent / "e7", {"x": "of the run"})
        ran_in(world, used)
        await world.ran(job)
        sealed = await world.told_of(job, "staging_sealed")
        assert (sealed.outcome, sealed.files) == ("verified", 1)
        outputs = await world.outputs(job)
        assert outputs is not None
        assert world.content(outputs, "x") == b"of the run"

        async def swept() -> bool:
            return areas(told) == ["e7"]

        await eventually(swept, "the directory to go that nobody has used")
    assert [row["directory"] for row in await rows(world)] == [str(used.relative_to(world.root))]


async def test_an_event_of_the_lost_time_about_a_job_that_no_record_has_stages_nothing(world: World) -> None:
    await taken_back(world)
    world.restoring = False
    lost, known = world.record("true"), world.record("true")
    await world.publish_all([world.records.pop(lost), world.records[known]])
    async with world.stager():
        await world.told_of(known, "staged")
    assert [row["job"] for row in await rows(world)] == [known]
    assert [entry.name for entry in (world.root / "work" / "acme").iterdir()] == [known]
