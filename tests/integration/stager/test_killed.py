"""The stager as a process: killed at any moment, ended politely, replaced by another. One exact copy, or none."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.integration.stager.conftest import World, eventually, listing, tree
from tests.patience import PATIENCE_SECONDS

FILES = {f"data/{n:02}/f{n}": os.urandom(100_000) for n in range(50)}


class Processes:
    """Stagers as processes; whatever still runs at the end of a test is killed."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._log = folder / "stager.log"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        environ = self._world.environ(**more) | {"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()}
        with self._log.open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", "services.stager"], env=environ, stderr=log)
        self._running.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], number: signal.Signals) -> int:
        process.send_signal(number)
        return process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def processes(world: World, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(world, tmp_path)
    yield running
    running.stop()


async def row(world: World, job: str) -> asyncpg.Record:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        return await connection.fetchrow("SELECT * FROM stager.staging WHERE job = $1", job)
    finally:
        await connection.close()


async def in_the_middle(folder: Path, count: int) -> None:
    """Wait until a worker has written so many files."""
    await eventually(lambda: sum(len(names) for _, _, names in os.walk(folder)) >= count, f"{count} files in {folder}")


@pytest.mark.parametrize("after", [5, 40])
async def test_killed_while_staging_in_it_begins_again_in_another_directory(
    world: World, processes: Processes, tmp_path: Path, after: int
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", FILES))
    first = processes.start()
    job = await world.submit("true", snapshot=digest, outputs=("x",))
    attempt = world.workdir(job, 0).parent
    await in_the_middle(attempt, after)
    await asyncio.to_thread(processes.end, first, signal.SIGKILL)
    named = [path for path in attempt.iterdir() if not path.name.endswith(".part")]
    assert all(listing(path) == FILES for path in named), "nothing half done has a final name"
    processes.start()
    await world.told_of(job, "staged")
    assert listing(world.workdir(job)) == FILES
    left = [world.workdir(job).name]
    await eventually(lambda: [path.name for path in attempt.iterdir()] == left, "leftovers to be swept")
    assert len({fact.version.n for fact in world.facts(job, "staged")}) == 1


@pytest.mark.parametrize("after", [10, 45])
async def test_killed_while_copying_back_it_ends_with_one_exact_copy(
    world: World, processes: Processes, after: int
) -> None:
    first = processes.start()
    job = await world.submit("true", outputs=("data/**",))
    await world.told_of(job, "staged")
    tree(world.workdir(job), FILES)
    await world.ran(job)
    folder = world.blobs / "acme" / "outputs" / job
    await in_the_middle(folder, after)
    await asyncio.to_thread(processes.end, first, signal.SIGKILL)
    if (left := await row(world, job))["stage"] == "copy_back":
        assert left["manifest"] is None, "half a copy is never visible"
    processes.start()
    sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.outcome, sealed.files) == ("verified", 50)
    manifest = await world.outputs(job)
    assert manifest is not None
    assert {entry.path: world.content(manifest, entry.path) for entry in manifest.files} == FILES
    epoch = manifest.prefix.rstrip("/").rpartition("/")[2]
    await eventually(
        lambda: {path.name for path in folder.iterdir()} == {epoch, f"{epoch}.manifest.json"},
        "the copies of killed stagers to be cleared",
    )


async def test_ended_politely_it_hands_its_rows_back_at_once(
    world: World, processes: Processes, tmp_path: Path
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {**FILES, "large": os.urandom(20_000_000)}))
    first = processes.start()
    job = await world.submit("true", snapshot=digest, outputs=("x",))
    await in_the_middle(world.workdir(job, 0).parent, 3)
    assert await asyncio.to_thread(processes.end, first, signal.SIGTERM) == 0
    if (left := await row(world, job))["stage"] == "stage_in":
        assert (left["owner"], left["tries"]) == (None, 0), "the try does not count"
        assert not list(world.workdir(job, 0).parent.iterdir()), "what was half done is removed"
    processes.start(TIDEGATE_REPLICA="two")
    await world.told_of(job, "staged")
    assert len(listing(world.workdir(job))) == 51


async def test_another_replica_takes_over_when_the_lease_has_run_out(
    world: World, processes: Processes, tmp_path: Path
) -> None:
    """And the first one, frozen in the middle, publishes nothing when it wakes."""
    digest = world.snapshot(tree(tmp_path / "src", FILES))
    first = processes.start()
    job = await world.submit("true", snapshot=digest, outputs=("x",))
    await in_the_middle(world.workdir(job, 0).parent, 5)
    first.send_signal(signal.SIGSTOP)
    while (await row(world, job))["stage"] != "stage_in":  # it was too quick to be frozen in the middle
        first.send_signal(signal.SIGCONT)
        job = await world.submit("true", snapshot=digest, outputs=("x",))
        await in_the_middle(world.workdir(job, 0).parent, 5)
        first.send_signal(signal.SIGSTOP)
    await world.leases_run_out()
    processes.start(TIDEGATE_REPLICA="two")

    async def taken_over() -> bool:
        return bool((await row(world, job))["stage"] == "staged")

    await eventually(taken_over, "the second replica to stage it in")
    first.send_signal(signal.SIGCONT)  # it leads the relay, too: facts come when it goes on, or is gone
    staged = await world.told_of(job, "staged")
    assert staged.source == "stager/two"
    directory = world.workdir(job)
    await world.ran(job)
    await world.told_of(job, "staging_sealed")
    other = await world.submit("true")
    await world.told_of(other, "staged")
    assert len({fact.version.n for fact in world.facts(job, "staged")}) == 1
    assert listing(directory) == FILES
    await eventually(
        lambda: [path.name for path in directory.parent.iterdir()] == [directory.name],
        "what the first one had begun to be removed",
    )
