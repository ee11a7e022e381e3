"""Attempts on a real cluster are ended when they are to be, and only what is over is sealed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from shared.backends.slurm import records
from shared.lifecycle.facts import LauncherSealed
from tests.databases import FreshDatabase
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import Launcher
from tests.slurm.launching import HANGS_AND_SUBMITS, HASTY, SlurmWorld, slurm_world, until

GENTLE = ("sh", "-c", "trap 'echo TERM >> ledger; exit 0' TERM; echo up >> ledger; while :; do sleep 0.1; done")
STUBBORN = ("sh", "-c", "trap '' TERM; echo up >> ledger; while :; do sleep 0.1; done")


@pytest.fixture
async def world(service_database: FreshDatabase, cluster: Cluster, tmp_path: Path) -> AsyncIterator[SlurmWorld]:
    async with slurm_world(service_database, cluster, tmp_path) as made:
        yield made


async def running(world: SlurmWorld, launcher: Launcher, *command: str) -> Job:
    """A job whose command is up."""
    job = await world.job(*command)
    await launcher.launch(job.again())
    await world.facts(job)
    await world.until_file(job, "ledger")
    return job


async def ran(world: SlurmWorld, launcher: Launcher, job: Job) -> bool:
    """Whether it ran, as the launcher votes at last."""
    [vote] = [fact for fact in await world.until_sealed(launcher, job) if isinstance(fact, LauncherSealed)]
    return vote.ran


async def test_what_is_stopped_while_it_waits_never_runs(world: SlurmWorld) -> None:
    world.slurm.update_node("drain")
    launcher = world.replica()
    job = await world.job()
    await launcher.launch(job.again())
    await world.facts(job)
    await launcher.end(job.stop())
    assert not await ran(world, launcher, job)
    assert [line.split()[1] for line in world.jobs_of(job)] == ["CANCELLED"]
    world.slurm.wait_for_node()
    assert world.ledger(job) == []


async def test_a_command_hears_of_its_stop_and_has_its_grace(world: SlurmWorld) -> None:
    launcher = world.replica()
    job = await running(world, launcher, *GENTLE)
    await launcher.end(job.stop(grace_seconds=60))
    assert await ran(world, launcher, job)
    assert world.ledger(job) == ["up", "TERM"]
    [seen] = records.read(str(world.directory(job))).stop_seen.values()
    assert seen.by == "request"


async def test_a_command_that_ignores_its_stop_is_killed_after_the_grace(world: SlurmWorld) -> None:
    launcher = world.replica()
    job = await running(world, launcher, *STUBBORN)
    await launcher.end(job.stop(grace_seconds=1))
    assert await ran(world, launcher, job)
    assert world.ledger(job) == ["up"]
    [end] = records.read(str(world.directory(job))).exits.values()
    assert end.signal == 9


async def test_a_stop_without_a_grace_ends_it_at_once(world: SlurmWorld) -> None:
    launcher = world.replica()
    job = await running(world, launcher, *STUBBORN)
    await launcher.end(job.stop(force=True))
    assert await ran(world, launcher, job)


async def test_what_was_queued_again_is_stopped_while_it_waits_and_has_run(world: SlurmWorld) -> None:
    launcher = world.replica(may_requeue=True)
    job = await running(world, launcher, *GENTLE)
    [line] = world.jobs_of(job)
    world.slurm.run(["scontrol", "requeue", line.split()[0]])
    await world.until_jobs(job, lambda them: them[0].endswith("PENDING"))
    await launcher.end(job.stop())
    assert await ran(world, launcher, job)
    assert world.ledger(job).count("up") == 1


async def test_while_the_controller_hangs_nothing_is_sealed_and_the_row_says_why(world: SlurmWorld) -> None:
    launcher = world.replica(time_outs=HASTY)
    job = await running(world, launcher, *GENTLE)
    world.slurm.freeze("slurmctld")
    await launcher.end(job.stop(grace_seconds=60))
    assert "squeue did not answer" in await world.waits_for(job)
    assert await world.facts(job) == []
    world.slurm.thaw("slurmctld")
    assert await ran(world, launcher, job)


async def test_a_launch_that_comes_after_the_seal_never_runs_and_is_cancelled(world: SlurmWorld) -> None:
    job = await world.job()
    late = world.replica(environment=world.sbatch_that(HANGS_AND_SUBMITS))
    asking = asyncio.create_task(late.launch(job.again()))
    await world.until_passed()
    two = await world.successor()
    await two.end(job.stop())
    assert not await ran(world, two, job)
    world.slurm.update_node("drain")
    world.go_on()
    await asking
    await until(lambda: world.jobs_of(job), lambda: "no job")
    assert await two.sweep.once() == 1
    assert [line.split()[1] for line in world.jobs_of(job)] == ["CANCELLED"]
    assert world.ledger(job) == []
