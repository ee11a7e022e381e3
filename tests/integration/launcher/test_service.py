"""The launcher as a process: job events in from JetStream, facts out to it, specs from the api's answer."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import nats
import pytest

from shared.backends.local.sightings import LocalState
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase
from tests.integration.backends.local.harness import Backend, Failpoints
from tests.integration.launcher.processes import Api, Process, process
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import LEDGER
from tests.servers import NatsServer


@pytest.fixture
async def api(nats_url: str, nats_server: NatsServer) -> AsyncIterator[Api]:
    """The api's part, over streams and consumers as a deployment has them."""
    admin = await nats.connect(nats_url, **nats_server.login("admin"))
    await ensure(admin.jetstream())
    connection = await nats.connect(nats_url, **nats_server.login("api"))
    api = Api(connection)
    await api.serve(admin)
    yield api
    await connection.close()
    await admin.close()


@pytest.fixture
async def launcher(
    service_database: FreshDatabase, nats_server: NatsServer, backend: Backend, tmp_path: Path
) -> AsyncIterator[Process]:
    """A launcher process, not started yet."""
    database = await service_database("launcher")
    with process(database, nats_server, backend.root, tmp_path / "launcher.log") as launcher:
        yield launcher


@pytest.fixture
async def replicas(
    service_database: FreshDatabase, nats_server: NatsServer, backend: Backend, tmp_path: Path
) -> AsyncIterator[tuple[Process, Process, Failpoints]]:
    """Two replicas, not started yet, that obey orders; a launch of one is soon the other's."""
    places = Failpoints(tmp_path / "failpoints")
    database = await service_database("launcher")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                process(
                    database,
                    nats_server,
                    backend.root,
                    tmp_path / f"{name}.log",
                    TIDEGATE_REPLICA=name,
                    TIDEGATE_LAUNCH_LEASE_SECONDS="2",
                    **places.environment,
                )
            )
            for name in ("one", "two")
        )
        yield one, two, places


def ledger(backend: Backend, job: Job) -> list[str]:
    """The runs of a job whose command has ended."""
    return (backend.root / job.directory / "ledger").read_text().split()


async def test_from_the_staged_event_to_the_vote(api: Api, launcher: Process, backend: Backend) -> None:
    launcher.start()
    jobs = [await api.submit(backend, *LEDGER) for _ in range(20)]
    await api.until("accepted", *jobs)
    for job in jobs:
        await api.ends(job)
    await api.until("launcher_sealed", *jobs)
    assert {job.record.state.value for job in jobs} == {"SUCCEEDED"}
    assert [ledger(backend, job) for job in jobs] == [[job.id] for job in jobs]
    assert launcher.end(signal.SIGTERM) == 0


async def test_killed_again_and_again_it_launches_each_job_once(api: Api, launcher: Process, backend: Backend) -> None:
    jobs: list[Job] = []
    for round_ in range(4):
        launcher.start()
        jobs += [await api.submit(backend, *LEDGER) for _ in range(10)]
        if round_:
            await api.until("accepted", jobs[10 * (round_ - 1)])
        launcher.end(signal.SIGKILL)
    launcher.start()
    await api.until("accepted", *jobs)
    for job in jobs:
        await api.ends(job)
    await api.until("launcher_sealed", *jobs)
    assert [ledger(backend, job) for job in jobs] == [[job.id] for job in jobs]


async def test_a_launcher_frozen_around_its_question_goes_on_later_and_nothing_runs_twice(
    api: Api, replicas: tuple[Process, Process, Failpoints], backend: Backend
) -> None:
    one, two, places = replicas
    places.arm("launcher.submit.before", "stop")
    one.start()
    before = await api.submit(backend, *LEDGER)
    frozen = await places.until_obeyed("launcher.submit.before")
    two.start()
    await api.until("accepted", before)
    os.kill(frozen, signal.SIGCONT)
    places.arm("launcher.submit.after", "stop")
    after = await api.submit(backend, *LEDGER)
    frozen = await places.until_obeyed("launcher.submit.after")
    await api.until("accepted", after)
    os.kill(frozen, signal.SIGCONT)
    assert [replica.end(signal.SIGTERM) for replica in (one, two)] == [0, 0], "what was begun is done"
    for job in (before, after):
        await backend.until(f"tidegate.{job.id}.a1.s1", LocalState.EXITED)
        assert ledger(backend, job) == [job.id]
        assert len([fact for fact in api.told if fact.job == job.id]) == 1


async def test_an_event_of_the_lost_time_about_a_job_that_no_record_has_launches_nothing(
    api: Api, service_database: FreshDatabase, nats_server: NatsServer, backend: Backend, tmp_path: Path
) -> None:
    database = await service_database("launcher")
    connection = await asyncpg.connect(database.superuser_url)
    try:
        await connection.execute("UPDATE launcher.standing SET epoch = 2, backup_at = now()")
        lost, known = [await api.submit(backend, *LEDGER) for _ in range(2)]
        del api.jobs[lost.id]
        with process(database, nats_server, backend.root, tmp_path / "launcher.log") as launcher:
            launcher.start()
            await api.until("accepted", known)
        rows = await connection.fetch("SELECT job FROM launcher.launches")
        assert [row["job"] for row in rows] == [known.id]
    finally:
        await connection.close()
