"""The stager killed or frozen at named places: one directory and one copy count, and nothing else is left behind."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stager.conftest import World, eventually, listing, tree
from tests.integration.stager.test_killed import Processes, row
from tests.patience import PATIENCE_SECONDS

FILES: dict[str, str | bytes] = {"data/a": b"1" * 50_000, "data/b": "2"}


class Failpoints:
    """The folder of a harness."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "obeyed"):
            (folder / name).mkdir(parents=True)

    def environ(self, **more: str) -> dict[str, str]:
        return {"TIDEGATE_FAILPOINTS": str(self.folder), **more}

    def arm(self, point: str, order: str) -> None:
        """Whole or not at all: who passes reads it at any moment."""
        written = self.folder / point
        written.write_text(order)
        written.rename(self.folder / "armed" / f"stager.{point}")

    async def obeyed(self, point: str) -> int:
        """Wait until a process has obeyed; its pid."""
        done = self.folder / "obeyed"

        def pids() -> list[str]:
            return [path.suffix[1:] for path in done.iterdir() if path.stem == f"stager.{point}"]

        await eventually(pids, f"{point} to be reached")
        [pid] = pids()
        (done / f"stager.{point}.{pid}").unlink()
        return int(pid)


@pytest.fixture
def failpoints(tmp_path: Path) -> Failpoints:
    return Failpoints(tmp_path / "failpoints")


@pytest.fixture
def processes(world: World, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(world, tmp_path)
    yield running
    running.stop()


def traces(world: World) -> list[str]:
    """What is under way, or was left behind."""
    folder = world.root / "staging"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def only_what_counts_is_left(world: World, job: str) -> None:
    """One directory of the attempt, the outputs of one lease, and no trace of others."""
    attempt = world.workdir(job, 0).parent
    directory = world.workdir(job)
    stored = world.blobs / "acme" / "outputs" / job

    def left() -> bool:
        directories = {path.name for path in attempt.iterdir() if path.is_dir() and path.name.startswith("e")}
        names = [path.name for path in stored.iterdir()] if stored.exists() else []
        outputs = {name.partition("#")[0].removesuffix(".manifest.json") for name in names}
        return not traces(world) and directories == {directory.name} and len(outputs) <= 1

    await eventually(left, f"leftovers of {job} to be swept")


async def back(world: World, job: str) -> None:
    sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.outcome, sealed.files) == ("verified", 1)
    manifest = await world.outputs(job)
    assert manifest is not None
    assert world.content(manifest, "out/r") == b"result"
    assert sealed.manifest == f"{manifest.prefix.removesuffix('/')}.manifest.json"
    assert len({fact.version.n for fact in world.facts(job, "staged")}) == 1
    assert len({fact.version.n for fact in world.facts(job, "staging_sealed")}) == 1
    await only_what_counts_is_left(world, job)


async def reaped(process: subprocess.Popen[bytes]) -> None:
    await asyncio.to_thread(process.wait, PATIENCE_SECONDS)


async def test_killed_anywhere_it_ends_with_one_directory_and_one_copy(
    world: World, processes: Processes, failpoints: Failpoints, tmp_path: Path
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", FILES))
    environ = failpoints.environ()
    process = processes.start(**environ)
    for in_, out in (("rename.before", "copy.after"), ("rename.after", "rename.after")):
        failpoints.arm(in_, "kill")
        job = await world.submit("true", snapshot=digest, outputs=("out/**",))
        await failpoints.obeyed(in_)
        await reaped(process)
        assert traces(world), "the dead one's work can be found"
        process = processes.start(**environ)
        await world.told_of(job, "staged")
        assert listing(world.workdir(job)) == {"data/a": b"1" * 50_000, "data/b": b"2"}
        failpoints.arm(out, "kill")
        tree(world.workdir(job), {"out/r": "result"})
        await world.ran(job)
        await failpoints.obeyed(out)
        await reaped(process)
        process = processes.start(**environ)
        await back(world, job)


@pytest.mark.parametrize("point", ["copy.after", "rename.before"])
async def test_frozen_while_another_replica_takes_over_it_changes_nothing_when_it_goes_on(
    world: World, processes: Processes, failpoints: Failpoints, tmp_path: Path, point: str
) -> None:
    """Staging in, then copying back; at the second place the frozen one is killed before it can clear up."""
    digest = world.snapshot(tree(tmp_path / "src", FILES))
    first = processes.start(**failpoints.environ())
    failpoints.arm(point, "stop")
    job = await world.submit("true", snapshot=digest, outputs=("out/**",))
    assert await failpoints.obeyed(point) == first.pid
    await world.leases_run_out()
    second = processes.start(**failpoints.environ(TIDEGATE_REPLICA="two"))
    staged = await world.told_of(job, "staged")
    assert staged.source == "stager/two"
    first.send_signal(signal.SIGCONT)
    await only_what_counts_is_left(world, job)
    before = listing(world.workdir(job))
    failpoints.arm(point, "stop")
    tree(world.workdir(job), {"out/r": "result"})
    (world.workdir(job).parent / "claim").write_text("{}")
    await world.ran(job)
    frozen = first if await failpoints.obeyed(point) == first.pid else second
    await world.leases_run_out()
    await eventually(lambda: world.facts(job, "staging_sealed"), "the other replica to copy back")
    assert traces(world), "the frozen one's is kept for as long as it lives"
    if point == "rename.before":
        failpoints.arm("rename.after", "kill")
    frozen.send_signal(signal.SIGCONT)
    if point == "rename.before":
        assert await failpoints.obeyed("rename.after") == frozen.pid
        await reaped(frozen)
    await back(world, job)
    assert listing(world.workdir(job)) == before | {"out/r": b"result"}
    assert (await row(world, job))["lease_epoch"] == 4, "each piece of work was leased twice"
