"""A service as the process that a deployment runs, on a database and a broker of one test."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from shared.contracts.events import encode_event
from shared.contracts.subjects import rpc_subject
from shared.lifecycle.record import JobRecord
from shared.runtime.topology import ensure
from tests.databases import ServiceDatabase
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer


async def eventually(condition: Callable[[], Awaitable[object]], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; a test that waits in vain says for what."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await condition():
        assert loop.time() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.02)


@dataclass
class Deployment:
    """One service's stores, and its replicas. The test stands in for `api` with the administrator's login."""

    database: ServiceDatabase
    broker: NatsServer
    connection: Client
    bodies: list[bytes] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    async def of(cls, database: ServiceDatabase, broker: NatsServer, answers: str) -> "Deployment":
        """With streams in place; what is published on `answers` is collected in `bodies`."""
        connection = await nats.connect(broker.url, **broker.login("admin"))
        deployment = cls(database, broker, connection)
        await ensure(deployment.streams)

        async def collect(message: Msg) -> None:
            deployment.bodies.append(message.data)

        await connection.subscribe(answers, cb=collect)
        await connection.flush()
        return deployment

    @property
    def streams(self) -> JetStreamContext:
        return self.connection.jetstream(timeout=PATIENCE_SECONDS)

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """One more replica, with these variables besides."""
        service = self.database.service
        given = {
            "TIDEGATE_DATABASE_URL": self.database.url,
            "TIDEGATE_NATS_URL": self.broker.url,
            "TIDEGATE_NATS_USER": service,
            "TIDEGATE_NATS_PASSWORD": self.broker.password(service),
            "TIDEGATE_REPLICA": f"{service}-{next(self._numbers)}",
        }
        if service == "gatekeeper":
            given["TIDEGATE_CLUSTER_SILENT_SECONDS"] = "3600"  # a test reports once, and a process may start slowly
        process = subprocess.Popen([sys.executable, "-m", f"services.{service}"], env={**os.environ, **given, **more})
        self._processes.append(process)
        return process

    async def end(self, process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> int:
        """Signal a replica and wait for its end."""
        process.send_signal(number)
        self._processes.remove(process)
        return await asyncio.to_thread(process.wait, PATIENCE_SECONDS)

    async def says(self, *records: JobRecord, event: str = "queued") -> None:
        """`api` publishes the events of these records."""
        for record in records:
            wire = encode_event(record, event, record.submitted_at)
            await self.streams.publish(wire.subject, wire.body, headers={**wire.headers, "Nats-Msg-Id": wire.msg_id})

    async def ask(self, method: str, body: bytes) -> bytes:
        """Query the service, waiting until it answers."""
        answers: list[bytes] = []

        async def answered() -> bool:
            try:
                reply = await self.connection.request(rpc_subject(self.database.service, method), body, 2)
            except nats.errors.Error:
                return False
            assert "Tidegate-Error" not in (reply.headers or {}), reply.headers
            answers.append(reply.data)
            return True

        await eventually(answered, f"an answer to {method}")
        return answers[-1]

    async def close(self) -> None:
        for process in list(self._processes):
            await self.end(process, signal.SIGKILL)
        await self.connection.close()
