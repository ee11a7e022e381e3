"""Launched exactly once on a real cluster, whatever becomes of sbatch and of who called it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from tests.databases import FreshDatabase
from tests.integration.launcher.world import kinds
from tests.slurm.launching import HANGS, HASTY, SUBMITS_AND_HANGS, SlurmWorld, slurm_world


@pytest.fixture
async def world(service_database: FreshDatabase, cluster: Cluster, tmp_path: Path) -> AsyncIterator[SlurmWorld]:
    async with slurm_world(service_database, cluster, tmp_path) as made:
        yield made


async def test_it_runs_once_and_is_told_with_its_id(world: SlurmWorld) -> None:
    launcher = world.replica()
    jobs = [await world.job() for _ in range(3)]
    await launcher.launch(*(job.again() for job in jobs))
    told = await world.facts(*jobs)
    assert kinds(told) == ["accepted"] * 3
    assert {(fact.backend, fact.cluster) for fact in told if fact.kind == "accepted"} == {("slurm", "hpc")}
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


@pytest.mark.parametrize("sbatch", [SUBMITS_AND_HANGS, HANGS], ids=["after it submitted", "before it submits"])
async def test_it_runs_once_where_sbatch_times_out(world: SlurmWorld, sbatch: str) -> None:
    launcher = world.replica(environment=world.sbatch_that(sbatch), time_outs=HASTY)
    job = await world.job()
    await launcher.launch(job.again())
    assert await world.facts(job) == []
    assert "sbatch did not answer within 3 s" in await world.waits_for(job)
    await world.until_accepted(launcher, job)
    await world.until_ran(job)
    assert world.ledger(job) == [job.id]
    assert len(world.jobs_of(job)) == 1
