"""The launcher as a process: job events in from JetStream, facts out to it, specs from the api's answer."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

from shared.contracts.facts import decode_fact
from shared.contracts.queries import SpecsAnswer, SpecsAsked
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import AnyFact
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.backends.local.harness import REPOSITORY, Backend
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import LEDGER
from tests.servers import NatsServer


@dataclass
class Api:
    """What the launcher sees of the api: its events, its answers; and what it hears of the launcher's facts."""

    connection: Client
    specs: dict[str, JobSpec] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    told: list[AnyFact] = field(default_factory=list)

    async def serve(self, admin: Client) -> None:
        """Answer questions, and apply facts as they come."""
        await self.connection.subscribe("rpc.v1.api.specs", cb=self._answer)
        config = ConsumerConfig(inactive_threshold=60)
        await admin.jetstream().subscribe("facts.v1.launcher.>", stream="FACTS", cb=self._hear, config=config)

    async def submit(self, backend: Backend, *command: str) -> Job:
        """A job whose inputs are staged, and the event that says so."""
        job = Job(*command)
        self.specs[job.spec.digest()] = job.spec
        self.jobs[job.id] = job
        await backend.client.make_attempt_directory(job.record.tenant, job.id, 1)
        (backend.root / job.directory).mkdir()
        job.staged()
        await self.publish(job)
        return job

    async def publish(self, job: Job) -> None:
        """The newest event of the job."""
        event = job.again()
        await self.connection.jetstream().publish(event.subject, event.body)

    async def until(self, kind: str, *jobs: Job) -> None:
        """Wait until the launcher has told this of all of them."""
        deadline = asyncio.get_running_loop().time() + 30
        while missing := {job.id for job in jobs} - {fact.job for fact in self.told if fact.kind == kind}:
            assert asyncio.get_running_loop().time() < deadline, f"{kind} of {missing}; told: {self.told}"
            await asyncio.sleep(0.01)

    async def _answer(self, message: Msg) -> None:
        asked = SpecsAsked.model_validate_json(message.data)
        known = {digest: self.specs[digest] for digest in asked.digests if digest in self.specs}
        await message.respond(SpecsAnswer(specs=known).model_dump_json().encode())

    async def _hear(self, message: Msg) -> None:
        fact = decode_fact(message.subject, message.data)
        self.told.append(fact)
        self.jobs[fact.job].apply(fact)


@dataclass
class Process:
    """A launcher to start, kill and start again."""

    environ: dict[str, str]
    log: Path
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it works when it works."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "services.launcher"]
            self.child = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | self.environ, stderr=log)

    def end(self, number: signal.Signals) -> int:
        """Signal it and wait; its exit code."""
        assert self.child is not None
        self.child.send_signal(number)
        return self.child.wait(20)


@contextmanager
def process(database: ServiceDatabase, server: NatsServer, root: Path, log: Path) -> Iterator[Process]:
    """A launcher process, not started yet; none is left afterwards."""
    launcher = Process(
        {
            "TIDEGATE_DATABASE_URL": database.url,
            "TIDEGATE_NATS_URL": server.url,
            "TIDEGATE_NATS_USER": "launcher",
            "TIDEGATE_NATS_PASSWORD": server.password("launcher"),
            "TIDEGATE_LOCAL_ROOT": str(root),
        },
        log,
    )
    yield launcher
    if launcher.child is not None and launcher.child.poll() is None:
        launcher.end(signal.SIGKILL)


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


async def test_from_the_staged_event_to_the_vote(api: Api, launcher: Process, backend: Backend) -> None:
    launcher.start()
    jobs = [await api.submit(backend, *LEDGER) for _ in range(20)]
    await api.until("accepted", *jobs)
    for job in jobs:
        job.exited(f"tidegate.{job.id}.a1.s1")
        await api.publish(job)
    await api.until("launcher_sealed", *jobs)
    assert {job.record.state.value for job in jobs} == {"SUCCEEDED"}
    assert [(backend.root / job.directory / "ledger").read_text().split() for job in jobs] == [[job.id] for job in jobs]
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
    ledgers = [backend.root / job.directory / "ledger" for job in jobs]
    deadline = asyncio.get_running_loop().time() + 30
    while not all(ledger.exists() for ledger in ledgers):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    assert [ledger.read_text().split() for ledger in ledgers] == [[job.id] for job in jobs]
