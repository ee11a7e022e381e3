"""A stack that obeys failpoints, with replicas of every service, its store and its database open to the test."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.stack import environment
from infra.embedded.state import Entry, State
from infra.nats.permissions import ADMIN
from shared.client.client import Tidegate
from shared.client.endpoint import Endpoint
from shared.contracts.subjects import SERVICES, job_subject
from shared.contracts.usage import UsageLine, decode_line
from shared.runtime.failpoints import FOLDER
from tests.chaos.orders import Orders
from tests.e2e.stacks import Stack, superuser_url

T = TypeVar("T")
REPLICAS = 2
SLOTS = 16
GPUS = 8
_READY_SECONDS = 300
_LOST_AFTER_SECONDS = 15
_AWAY_SECONDS = 120
_AT_ONCE = 500
_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    NatsError,
)
_PATIENCE_SECONDS = 5
"""A request that takes longer is given up and made again: its replica may be dead or frozen."""


@dataclass
class Stand(Stack):
    """The stack under test."""

    gpus: int = GPUS
    slots: int = SLOTS
    replicas: int = REPLICAS
    infrastructure_retries: int = 0
    """How often what is lost is tried again. None: it stays lost, so each job's runs are counted."""
    supervisor: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    usage_read: int = field(default=0, repr=False)
    """The last number of the stream USAGE that was read; whoever takes the stream back sets it back."""
    events_read: int = field(default=0, repr=False)
    """The same of the stream JOBS."""
    _usage: dict[str, UsageLine] = field(default_factory=dict, repr=False)

    @property
    def orders(self) -> Orders:
        return Orders(self.home / "failpoints")

    @property
    def place(self) -> Home:
        return Home(self.home)

    def begin(self) -> None:
        """Start it, and return once every replica answers."""
        options = Options(
            self.home, virtual_gpus=self.gpus, slots=self.slots, replicas=dict.fromkeys(SERVICES, self.replicas)
        )
        settings = {
            FOLDER: str(self.orders.folder),
            "TIDEGATE_LOST_AFTER_SECONDS": str(_LOST_AFTER_SECONDS),
            "TIDEGATE_INFRASTRUCTURE_RETRY_BUDGET": str(self.infrastructure_retries),
        }
        with open(self.home / "supervisor.out", "ab") as output:
            self.supervisor = subprocess.Popen(
                (sys.executable, "-m", "tests.chaos.supervising", json.dumps(options.to_json())),
                cwd=self.home,
                env=environment() | settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not ((state := State.read(self.place)) and state.ready and state.supervisor.pid == self.supervisor.pid):
            assert self.supervisor.poll() is None, (self.home / "supervisor.out").read_text()
            assert time.monotonic() < deadline, f"the stack in {self.home} is not ready after {_READY_SECONDS} s"
            time.sleep(0.05)

    def end(self) -> None:
        """Stop it and its jobs."""
        self.down()
        if self.supervisor is not None:
            self.supervisor.wait(60)

    def entries(self) -> dict[str, Entry]:
        """The processes as the supervisor wrote them down last, by name."""
        state = State.read(self.place)
        return {} if state is None else {entry.name: entry for entry in state.processes}

    def patient(self, *, admin: bool = False) -> Tidegate:
        """A client that gives a silent server up soon."""
        known = self.endpoint
        endpoint = Endpoint(known["url"], known["token"], known["admin_token"], "test")
        return Tidegate(endpoint, admin=admin, timeout_seconds=_PATIENCE_SECONDS)

    def rows(self, *queries: tuple[Any, ...]) -> list[list[asyncpg.Record]]:
        """The answers of several queries, each a statement with its arguments, in one look at the database; a server
        that is away is waited for."""
        return self._patiently(lambda: asyncio.run(_rows(superuser_url(self), queries)))

    def usage_lines(self) -> list[UsageLine]:
        """The ledger as other systems get it: every line that the stream USAGE had, once."""
        self._patiently(lambda: asyncio.run(self._read_usage()))
        return list(self._usage.values())

    def events_shown(self) -> list[Msg]:
        """The events of jobs as their subscribers got them since this was asked last, in the order of the stream."""
        return self._patiently(lambda: asyncio.run(self._read_events()))

    async def _read_events(self) -> list[Msg]:
        connection = await self._broker()
        read: list[Msg] = []
        try:
            streams = connection.jetstream()
            last = (await streams.stream_info("JOBS")).state.last_seq
            first = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self.events_read + 1,
                ack_policy=AckPolicy.NONE,
            )
            reader = await streams.pull_subscribe(job_subject("*", "*"), stream="JOBS", config=first)
            while self.events_read + len(read) < last:
                read += await reader.fetch(_AT_ONCE, timeout=_PATIENCE_SECONDS)
        finally:
            await connection.close()
        self.events_read += len(read)
        return read

    async def _broker(self) -> Client:
        password = self.place.secret(f"{ADMIN}.nats.password")
        return await nats.connect(
            self.endpoint["nats_url"], user=ADMIN, password=password, inbox_prefix=f"_INBOX_{ADMIN}"
        )

    async def _read_usage(self) -> None:
        connection = await self._broker()
        try:
            streams = connection.jetstream()
            last = (await streams.stream_info("USAGE")).state.last_seq
            while self.usage_read < last:
                body = (await streams.get_msg("USAGE", self.usage_read + 1)).data
                assert body is not None
                line = decode_line(body)
                known = self._usage.setdefault(line.id, line)
                assert known == line, f"the ledger has two lines {line.id}: {known} and {line}"
                self.usage_read += 1
        finally:
            await connection.close()

    def _patiently(self, look: Callable[[], T]) -> T:
        deadline = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                return look()
            except _AWAY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


async def _rows(url: str, queries: tuple[tuple[Any, ...], ...]) -> list[list[asyncpg.Record]]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return [await connection.fetch(*query) for query in queries]
    finally:
        await connection.close()


def home_for(folder: Path) -> Path:
    """Where a stack's home may be: every tenant's uid passes through."""
    return folder / "home"
