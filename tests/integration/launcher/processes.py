"""A service as a process, and the api's part in what it hears and tells."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

from shared.contracts.facts import decode_fact
from shared.contracts.queries import NewestAnswer, NewestAsked, SpecsAnswer, SpecsAsked
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import AnyFact
from tests.databases import ServiceDatabase
from tests.integration.backends.local.harness import REPOSITORY, Backend
from tests.integration.launcher.story import Job
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer


@dataclass
class Api:
    """What a service sees of the api: its events, its answers; and what the api hears of the service's facts."""

    connection: Client
    specs: dict[str, JobSpec] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    told: list[AnyFact] = field(default_factory=list)

    async def serve(self, admin: Client, service: str = "launcher") -> None:
        """Answer questions, and apply the service's facts as they come."""
        await self.connection.subscribe("rpc.v1.api.specs", cb=self._answer)
        await self.connection.subscribe("rpc.v1.api.newest", cb=self._answer_newest)
        config = ConsumerConfig(inactive_threshold=60)
        await admin.jetstream().subscribe(f"facts.v1.{service}.>", stream="FACTS", cb=self._hear, config=config)

    async def submit(self, backend: Backend, *command: str, cluster: str | None = None) -> Job:
        """A job whose inputs are staged, and the event that says so."""
        job = Job(*command)
        self.specs[job.spec.digest()] = job.spec
        self.jobs[job.id] = job
        await backend.client.make_attempt_directory(job.record.tenant, job.id, 1)
        (backend.root / job.directory).mkdir()
        job.staged(cluster)
        await self.publish(job)
        return job

    async def publish(self, job: Job) -> None:
        """The newest event of the job."""
        event = job.again()
        await self.connection.jetstream(timeout=PATIENCE_SECONDS).publish(event.subject, event.body)

    async def ends(self, job: Job) -> None:
        """The watcher has seen the end of its command."""
        job.exited(f"tidegate.{job.id}.a1.s1")
        await self.publish(job)

    async def until(self, kind: str, *jobs: Job) -> None:
        """Wait until the launcher has told this of all of them."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while missing := {job.id for job in jobs} - {fact.job for fact in self.told if fact.kind == kind}:
            assert asyncio.get_running_loop().time() < deadline, f"{kind} of {missing}; told: {self.told}"
            await asyncio.sleep(0.01)

    async def _answer(self, message: Msg) -> None:
        asked = SpecsAsked.model_validate_json(message.data)
        known = {digest: self.specs[digest] for digest in asked.digests if digest in self.specs}
        await message.respond(SpecsAnswer(specs=known).model_dump_json().encode())

    async def _answer_newest(self, message: Msg) -> None:
        asked = NewestAsked.model_validate_json(message.data).jobs
        events = tuple(self.jobs[job].again().body.decode() for job in asked if job in self.jobs)
        await message.respond(NewestAnswer(events=events).model_dump_json().encode())

    async def _hear(self, message: Msg) -> None:
        fact = decode_fact(message.subject, message.data)
        self.told.append(fact)
        self.jobs[fact.job].apply(fact)


@dataclass
class Process:
    """One replica, to start, kill and start again."""

    service: str
    environ: dict[str, str]
    log: Path
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it works when it works."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", f"services.{self.service}"]
            self.child = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | self.environ, stderr=log)

    def end(self, number: signal.Signals) -> int:
        """Signal it and wait; its exit code."""
        assert self.child is not None
        self.child.send_signal(number)
        return self.child.wait(PATIENCE_SECONDS)


@contextmanager
def process(database: ServiceDatabase, server: NatsServer, root: Path, log: Path, **environ: str) -> Iterator[Process]:
    """A replica of the database's service, not started yet; none is left afterwards."""
    service = database.service
    replica = Process(
        service,
        {
            "TIDEGATE_DATABASE_URL": database.url,
            "TIDEGATE_NATS_URL": server.url,
            "TIDEGATE_NATS_USER": service,
            "TIDEGATE_NATS_PASSWORD": server.password(service),
            "TIDEGATE_LOCAL_ROOT": str(root),
        }
        | environ,
        log,
    )
    try:
        yield replica
    finally:
        if replica.child is not None and replica.child.poll() is None:
            replica.end(signal.SIGKILL)
