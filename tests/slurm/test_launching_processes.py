"""A launcher that is a process of its own, killed or stopped between intent and reply, on a real cluster."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import nats
import pytest

from infra.slurm.cluster import Cluster
from services.launcher.slurm import asked
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase
from tests.integration.backends.local.harness import Failpoints
from tests.integration.launcher.processes import Api, Process, process
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import LEDGER
from tests.servers import NatsServer
from tests.slurm.launching import HANGS, HANGS_AND_SUBMITS, NAME, SUBMITS_AND_HANGS, SlurmWorld, slurm_world, until

_FILE: Final = """
[hpc]
slurm_conf = "{conf}"
allow_root = true
settle_seconds = 1
submissions_at_once = {slots}

[hpc.coretypes.local]
partition = "debug"
"""
SLOTS: Final = 64
"""So many submissions at once: each of the stand-ins that wait has one."""
LONG = (pytest.mark.long, pytest.mark.timeout(1800))
OFTEN = [pytest.param(1, id="once"), pytest.param(50, id="50 times", marks=LONG)]


@pytest.fixture
async def world(service_database: FreshDatabase, cluster: Cluster, tmp_path: Path) -> AsyncIterator[SlurmWorld]:
    async with slurm_world(service_database, cluster, tmp_path) as made:
        yield made


@pytest.fixture
async def api(nats_url: str, nats_server: NatsServer) -> AsyncIterator[Api]:
    """The api's part, over streams and consumers as a deployment has them."""
    admin = await nats.connect(nats_url, **nats_server.login("admin"))
    await ensure(admin.jetstream())
    connection = await nats.connect(nats_url, **nats_server.login("api"))
    made = Api(connection)
    await made.serve(admin)
    yield made
    await connection.close()
    await admin.close()


class Replicas:
    """Launchers on the cluster, not started yet, that obey orders; each has an sbatch of its own."""

    def __init__(self, world: SlurmWorld, nats_server: NatsServer, folder: Path, stack: ExitStack) -> None:
        self._world = world
        self._nats = nats_server
        self._folder = folder
        self._stack = stack
        self.places = Failpoints(folder / "failpoints")

    def make(self, name: str, sbatch: str | None = None, *, times: int = 1) -> Process:
        """One; its first `times` calls of sbatch are this script."""
        clusters = self._folder / "clusters.toml"
        clusters.write_text(_FILE.format(conf=self._world.slurm.environment["SLURM_CONF"], slots=SLOTS))
        environ = {"PATH": os.environ["PATH"]}
        if sbatch is not None:
            environ = {"PATH": f"{self._world.sbatch_that(sbatch, times=times)['PATH']}:{os.environ['PATH']}"}
        made = process(
            self._world.login,
            self._nats,
            self._world.backend.root,
            self._folder / f"{name}.log",
            TIDEGATE_REPLICA=name,
            TIDEGATE_CLUSTERS=str(clusters),
            **environ,
            **self.places.environment,
        )
        return self._stack.enter_context(made)


@pytest.fixture
def replicas(world: SlurmWorld, nats_server: NatsServer, tmp_path: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(world, nats_server, tmp_path, stack)


async def time_passes(world: SlurmWorld, *jobs: Job) -> None:
    """The leases, and the times of the calls of sbatch, are over."""
    await world.database.execute(
        "UPDATE launches SET deadline = now() - interval '1 second' WHERE state = 'submitting'"
    )
    for job in jobs:
        asked.note(str(world.directory(job)), "another", datetime.now(UTC))


async def each_ran_once(world: SlurmWorld, *jobs: Job) -> None:
    await world.until_ran(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


@pytest.mark.parametrize(
    ("sbatch", "count"),
    [
        pytest.param(SUBMITS_AND_HANGS, 1, id="after sbatch submitted"),
        pytest.param(SUBMITS_AND_HANGS, 50, id="after sbatch submitted, 50 times", marks=LONG),
        pytest.param(HANGS, 50, id="before sbatch submits, 50 times", marks=LONG),
    ],
)
async def test_killed_while_it_asks_each_runs_once(
    world: SlurmWorld, api: Api, replicas: Replicas, sbatch: str, count: int
) -> None:
    one = replicas.make("one", sbatch)
    one.start()
    jobs = []
    for number in range(count):
        (world.stand_in() / f"armed.{number}").touch()
        job = await api.submit(world.backend, *LEDGER, cluster=NAME)
        await world.until_passed(number + 1)
        if sbatch == SUBMITS_AND_HANGS:
            await world.until_jobs(job, lambda them: them)
        one.end(signal.SIGKILL)
        await time_passes(world, job)
        one.start()
        await api.until("accepted", job)
        assert len(world.jobs_of(job)) == 1
        jobs.append(job)
    await each_ran_once(world, *jobs)


@pytest.mark.parametrize("count", OFTEN[1:])
@pytest.mark.parametrize("point", ["submit.before", "submit.after"])
async def test_killed_at_a_failpoint_each_runs_once(
    world: SlurmWorld, api: Api, replicas: Replicas, point: str, count: int
) -> None:
    one = replicas.make("one")
    jobs = []
    for _ in range(count):
        replicas.places.arm(f"launcher.{point}")
        one.start()
        jobs.append(await api.submit(world.backend, *LEDGER, cluster=NAME))
        await until(lambda: one.child is not None and one.child.poll() is not None, lambda: "it lives")
    one.start()
    await api.until("accepted", *jobs)
    assert {len(world.jobs_of(job)) for job in jobs[-10:]} == {1}, "the cluster has not forgotten these"
    await each_ran_once(world, *jobs)


@pytest.mark.parametrize("count", OFTEN)
async def test_stopped_while_it_asks_another_goes_on_and_each_runs_once(
    world: SlurmWorld, api: Api, replicas: Replicas, count: int
) -> None:
    one, two = replicas.make("one", HANGS_AND_SUBMITS, times=count), replicas.make("two")
    one.start()
    jobs = [await api.submit(world.backend, *LEDGER, cluster=NAME) for _ in range(count)]
    await world.until_passed(count)
    assert one.child is not None
    one.child.send_signal(signal.SIGSTOP)
    two.start()
    await time_passes(world, *jobs)
    await api.until("accepted", *jobs)
    world.go_on()
    await until(lambda: all(len(world.jobs_of(job)) == 2 for job in jobs), lambda: f"{[*map(world.jobs_of, jobs)]}")
    one.child.send_signal(signal.SIGCONT)
    await each_ran_once(world, *jobs)
    more = await api.submit(world.backend, *LEDGER, cluster=NAME)
    await api.until("accepted", more)
    assert len([fact for fact in api.told if fact.kind == "accepted"]) == len(jobs) + 1
