"""Launched exactly once on a real cluster, whatever becomes of sbatch and of who called it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from shared.lifecycle.facts import LaunchRefused
from shared.lifecycle.reasons import EndReason
from tests.databases import FreshDatabase
from tests.integration.launcher.world import kinds
from tests.slurm.launching import (
    HANGS,
    HANGS_AND_SUBMITS,
    HASTY,
    SUBMITS_AND_HANGS,
    SlurmWorld,
    said,
    slurm_world,
    until,
)

LONG = (pytest.mark.long, pytest.mark.timeout(1800))
OFTEN = [pytest.param(1, id="once"), pytest.param(50, id="50 times", marks=LONG)]
WAITS = ("sh", "-c", "echo $TIDEGATE_JOB_ID >> ledger; while ! [ -e goes_on ]; do sleep 0.1; done")


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
    assert {fact.ref for fact in told if fact.kind == "accepted"} == {
        line.split()[0] for job in jobs for line in world.jobs_of(job)
    }
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


@pytest.mark.parametrize("count", OFTEN)
@pytest.mark.parametrize("sbatch", [SUBMITS_AND_HANGS, HANGS], ids=["after it submitted", "before it submits"])
async def test_it_runs_once_where_sbatch_times_out(world: SlurmWorld, sbatch: str, count: int) -> None:
    launcher = world.replica(environment=world.sbatch_that(sbatch, times=count), time_outs=HASTY, submissions_at_once=4)
    jobs = [await world.job() for _ in range(count)]
    await launcher.launch(*(job.again() for job in jobs))
    assert await world.facts(*jobs) == []
    assert any([(await world.waits_for(job)).startswith("sbatch ") for job in jobs])
    await world.until_accepted(launcher, *jobs)
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]
    assert {len(world.jobs_of(job)) for job in jobs} == {1}


@pytest.mark.parametrize("count", OFTEN)
async def test_a_launcher_that_was_frozen_in_sbatch_submits_late_and_one_of_the_two_runs(
    world: SlurmWorld, count: int
) -> None:
    jobs = [await world.job() for _ in range(count)]
    late = world.replica(environment=world.sbatch_that(HANGS_AND_SUBMITS, times=count), submissions_at_once=64)
    asking = asyncio.create_task(late.launch(*(job.again() for job in jobs)))
    await world.until_passed(count)
    two = await world.successor(submissions_at_once=4)
    await world.until_accepted(two, *jobs)
    world.go_on()
    await asking
    await until(lambda: all(len(world.jobs_of(job)) == 2 for job in jobs), lambda: f"{[*map(world.jobs_of, jobs)]}")
    await world.until_ran(*jobs)
    assert [len(world.jobs_of(job)) for job in jobs] == [2] * count
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]
    assert await world.facts(*jobs) == []


@pytest.mark.parametrize("claimed", [False, True], ids=["while both wait", "while one runs"])
async def test_of_two_jobs_of_a_submission_one_stays_and_that_is_said(
    world: SlurmWorld, claimed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.job(*WAITS)
    late = world.replica(environment=world.sbatch_that(HANGS_AND_SUBMITS))
    asking = asyncio.create_task(late.launch(job.again()))
    await world.until_passed()
    two = await world.successor()
    if claimed:
        await world.until_accepted(two, job)
        await world.until_file(job, "ledger")
    world.slurm.update_node("drain")
    await world.until_accepted(two, *([] if claimed else [job]))
    world.go_on()
    await asking
    first, second = await world.until_jobs(job, lambda them: len(them) == 2)
    assert await two.sweep.once() == 0
    assert [line.split()[1] for line in world.jobs_of(job)] == ["RUNNING" if claimed else "PENDING", "CANCELLED"]
    found = said(caplog.records, "a submission has two Slurm jobs: one is cancelled")
    assert found == [{"submission": world.submission(job), "cancelled": second.split()[0]}]
    world.slurm.wait_for_node()
    (world.backend.root / job.directory / "goes_on").touch()
    await world.until_ran(job)
    assert world.ledger(job) == [job.id]
    assert first.split()[0] != second.split()[0]


@pytest.mark.parametrize("count", [pytest.param(5, id="5 jobs"), pytest.param(50, id="50 jobs", marks=LONG)])
async def test_two_launchers_that_are_asked_for_the_same_jobs_run_each_once(world: SlurmWorld, count: int) -> None:
    jobs = [await world.job() for _ in range(count)]
    one, two = world.replica("one"), world.replica("two")
    await one.handle(*(job.again() for job in jobs))
    await asyncio.gather(*(launcher.launching.once() for launcher in (one, two, one, two)))
    assert kinds(await world.facts(*jobs)) == ["accepted"] * count
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]
    assert {len(world.jobs_of(job)) for job in jobs} == {1}


@pytest.mark.parametrize("count", OFTEN)
async def test_a_controller_that_hangs_while_it_is_asked_runs_each_once(world: SlurmWorld, count: int) -> None:
    jobs = [await world.job() for _ in range(count)]
    launcher = world.replica(time_outs=HASTY)
    world.slurm.freeze("slurmctld")
    await launcher.launch(*(job.again() for job in jobs))
    await launcher.launching.once()
    assert "did not answer" in await world.waits_for(jobs[0])
    world.slurm.thaw("slurmctld")
    await world.until_accepted(launcher, *jobs)
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


async def test_what_the_cluster_has_forgotten_is_known_by_its_claim(world: SlurmWorld) -> None:
    job = await world.job()
    launcher = world.replica(accounting=False)
    await launcher.launch(job.again())
    await world.facts(job)
    await world.until_ran(job)
    world.slurm.forget_jobs()
    await world.database.execute("UPDATE launches SET state = 'intent', asked = true, accepted_n = NULL")
    two = await world.successor(accounting=False)
    await two.launching.once()
    assert kinds(await world.facts(job)) == ["accepted"]
    assert world.jobs_of(job) == []
    assert world.ledger(job) == [job.id]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"coretype": "nowhere"}, EndReason.CONFIGURATION),
        ({"coretype": "gpu", "gpus": 99}, EndReason.LAUNCH_REFUSED),
    ],
    ids=["a partition that there is not", "more than there is"],
)
async def test_what_slurm_refuses_never_runs_and_says_why(
    world: SlurmWorld, spec: dict[str, object], reason: EndReason
) -> None:
    launcher = world.replica()
    job = await world.job(**spec)
    await launcher.launch(job.again())
    told = await world.until_sealed(launcher, job)
    assert kinds(told) == ["launch_refused", "gpus_freed", "launcher_sealed"]
    [refused] = [fact for fact in told if isinstance(fact, LaunchRefused)]
    assert (refused.reason, refused.message.startswith("Slurm refused it: ")) == (reason, True)
    assert [path.name for path in world.directory(job).glob("env.*")] == []


async def test_what_slurm_keeps_of_a_refused_job_is_no_job(world: SlurmWorld) -> None:
    job = await world.job(coretype="gpu", gpus=99)
    launcher = world.replica(environment=world.sbatch_that(SUBMITS_AND_HANGS.replace("&&", ";")), time_outs=HASTY)
    await launcher.launch(job.again())
    assert await world.facts(job) == []
    two = await world.successor()

    async def is_refused() -> bool:
        await two.launching.once()
        return bool((await world.row(job))["refused_message"])

    await until(is_refused, lambda: "it was not refused")
    assert kinds(await world.until_sealed(two, job)) == ["launch_refused", "gpus_freed", "launcher_sealed"]
