"""A step of a pipeline is staged into the snapshot and the verified outputs of every step before it."""

import shutil
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.lifecycle import facts as f
from shared.lifecycle.record import PipelineRef
from shared.lifecycle.states import State
from tests.integration.stager.conftest import TENANT, World, eventually, listing, tree

PIPELINE = "p01jdx3k8q7w5m2v9c4b6n1r0te"
MODEL: dict[str, Any] = {"outputs": ("model/**",)}


class Steps:
    """Steps submitted one after the other; each is let through at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: str | None = None
        self._count = 0

    async def next(self, *command: str, **spec: Any) -> str:
        """The next step, whose event is published; its job."""
        job = self._world.record(*command, **spec)
        place = PipelineRef(
            id=PIPELINE, step=f"s{self._count}", index=self._count, after=self._last, upstream_done=True
        )
        self._world.records[job] = self._world.records[job].model_copy(update={"pipeline": place})
        self._last, self._count = job, self._count + 1
        await self._world.publish(job)
        return job

    async def staged(self, *command: str, **spec: Any) -> tuple[str, Path]:
        """The next step once it is staged, with its working directory."""
        job = await self.next(*command, **spec)
        await self._world.told_of(job, "staged")
        return job, self._world.workdir(job)

    async def succeeds(self, job: str) -> None:
        """Its command has exited with 0, its outputs are back, and nothing of it is left."""
        await self._world.ran(job)
        await self._world.told_of(job, "staging_sealed")
        await self.released(job)

    async def released(self, job: str) -> None:
        """The launcher has voted, too."""
        heading = self._world.heading
        await self._world.move(job, f.GpusFreed(**heading(job, 12)), f.LauncherSealed(**heading(job, 13), ran=True))
        assert self._world.records[job].state is State.SUCCEEDED


async def test_sees_the_snapshot_then_the_outputs_of_each_step_before_it_in_order(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"run.py": "", "model/log": "submitted", "model/seed": "7"}))
    async with world.stager():
        steps = Steps(world)
        first, here = await steps.staged("python3", "run.py", snapshot=digest, **MODEL)
        tree(here, {"model/log": "first", "model/parts/a": "a", "model/shape": "round", "scratch": "no output"})
        await steps.succeeds(first)
        second, here = await steps.staged("python3", "run.py", snapshot=digest, **MODEL)
        assert listing(here) == {
            "run.py": b"",
            "model/seed": b"7",
            "model/log": b"first",
            "model/parts/a": b"a",
            "model/shape": b"round",
        }
        shutil.rmtree(here / "model" / "parts")
        (here / "model" / "shape").unlink()
        tree(here, {"model/log": "second", "model/parts": "now a file", "model/shape/b": "now a folder"})
        await steps.succeeds(second)
        _, here = await steps.staged("python3", "run.py", snapshot=digest, outputs=("other/**",))
        assert listing(here) == {
            "run.py": b"",
            "model/seed": b"7",
            "model/log": b"second",
            "model/parts": b"now a file",
            "model/shape/b": b"now a folder",
        }


async def test_may_run_a_program_and_read_an_input_that_an_earlier_step_made(world: World) -> None:
    async with world.stager():
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/run.sh": "#!/bin/sh\n", "model/in": "x"})
        (here / "model" / "run.sh").chmod(0o755)
        await steps.succeeds(first)
        second, here = await steps.staged("model/run.sh", inputs=("model/in",))
        assert listing(here) == {"model/run.sh": b"#!/bin/sh\n", "model/in": b"x"}
        assert (here / "model" / "run.sh").stat().st_mode & 0o777 == 0o755
        await world.ran(second)
        await steps.released(second)
        refused = await steps.next("model/rum.sh")
        (finding,) = (await world.told_of(refused, "input_invalid")).findings
        assert finding.near == "model/run.sh"


async def test_finds_the_outputs_of_a_step_beyond_one_that_has_none(world: World) -> None:
    async with world.stager():
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/a": "a"})
        await steps.succeeds(first)
        second, here = await steps.staged("true")
        assert listing(here) == {"model/a": b"a"}
        await world.ran(second)
        await steps.released(second)
        _, here = await steps.staged("true")
        assert listing(here) == {"model/a": b"a"}


async def test_is_not_staged_before_the_step_before_it_is_known_to_have_succeeded(world: World) -> None:
    async with world.stager():
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/a": "a"})
        await world.ran(first)
        await world.told_of(first, "staging_sealed")
        second = await steps.next("true")

        await eventually(lambda: _tries(world, second), "the second step to be tried")
        assert not world.facts(second, "staged")
        await steps.released(first)
        await world.told_of(second, "staged")
        assert listing(world.workdir(second)) == {"model/a": b"a"}


async def test_is_never_staged_without_the_outputs_of_a_step_that_was_deleted(world: World) -> None:
    async with world.stager(TIDEGATE_STAGING_TRIES="1"):
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/a": "abc"})
        await steps.succeeds(first)
        world.records[first] = world.records[first].model_copy(update={"deleted": True})
        second = await steps.next("true")
        assert f"the step before it ({first}) was deleted" in (await world.told_of(second, "staging_failed")).message


@pytest.mark.parametrize("damage", ["another content", "gone"])
async def test_is_never_staged_with_outputs_that_are_not_what_was_verified(world: World, damage: str) -> None:
    async with world.stager(TIDEGATE_STAGING_TRIES="2"):
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/a": "abc"})
        await steps.succeeds(first)
        (stored,) = (world.blobs / TENANT / "outputs" / first).glob("*/model/a")
        stored.unlink() if damage == "gone" else stored.write_text("xyz")
        second = await steps.next("true")
        failed = await world.told_of(second, "staging_failed")
        assert "model/a" in failed.message
        assert not world.facts(second, "staged")
        assert not (world.workdir(second, 1)).exists()


async def _tries(world: World, job: str) -> int:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        return int(await connection.fetchval("SELECT tries FROM stager.staging WHERE job = $1", job) or 0)
    finally:
        await connection.close()
