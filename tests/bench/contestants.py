"""Who takes part in `make bench-peers`: tidegate on a stack of its own, and queues on a PostgreSQL with its settings.

A turn begins with everything started and warm, and ends when no job is open and every exit code is stored.
"""

import asyncio
import importlib
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import asyncpg

from infra.embedded.binaries import find_postgres
from infra.embedded.home import Home
from infra.embedded.postgres import SUPERUSER, Postgres
from shared.client import client as sdk
from tests.bench.throughput import cpu_seconds
from tests.e2e.stacks import Stack, superuser_url
from tests.servers import Server, wait_until

Jobs = Sequence[tuple[int, tuple[str, ...]]]
WARM_UP: Final[Jobs] = [(-n, ("true",)) for n in range(1, 21)]
DURABILITY: Final = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_OPEN: Final = ("QUEUED", "SUBMITTED", "PENDING", "RUNNING")
_PAGE: Final = 200


@dataclass(frozen=True)
class Turn:
    """What one turn gave: how many jobs in which time, how many exit codes are not what they should be.

    `cpu_seconds` are those of every process that took part, the jobs' own commands included, but for who submits.
    """

    jobs: int
    seconds: float
    wrong: int
    transactions: int
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


class Contestant(Protocol):
    """Runs jobs."""

    name: str

    def turn(self, jobs: Jobs) -> Turn:
        """Start, warm up, run these, stop."""

    def settings(self) -> dict[str, str]:
        """What its PostgreSQL says about durability. Only during its turn for tidegate; known after the first."""


class Tidegate:
    """A whole embedded stack, up during its turns only: it takes nothing from the others."""

    name = "tidegate"

    def __init__(self, folder: Path, slots: int) -> None:
        folder.mkdir()
        self._stack = Stack(folder)
        self._slots = slots
        self._settings: dict[str, str] = {}

    def settings(self) -> dict[str, str]:
        return self._settings

    def turn(self, jobs: Jobs) -> Turn:
        self._stack.up("--virtual-gpus", "8", "--slots", str(self._slots))
        try:
            url = superuser_url(self._stack)
            self._settings = asyncio.run(_settings(url))
            with self._stack.client() as client:
                self._run(client, WARM_UP)
                pids = [row["pid"] for row in self._stack.processes().values()]
                before, cpu = asyncio.run(_transactions(url)), _cpu(pids)
                began = time.monotonic()
                ids = self._run(client, jobs)
                took = time.monotonic() - began
                after, cpu = asyncio.run(_transactions(url)), _cpu(pids) - cpu
                codes = {job: client.job(job).exit.code for job in ids}
            wrong = sum(codes[job] != code_of(argv) for job, (_, argv) in zip(ids, jobs, strict=True))
            return Turn(len(jobs), took, wrong, after - before, cpu)
        finally:
            self._stack.down()

    def _run(self, client: sdk.Tidegate, jobs: Jobs) -> list[str]:
        body = {"jobs": [{"spec": {"command": list(argv)}} for _, argv in jobs]}
        ids: list[str] = client.call("POST", "/v1/jobs/batch", json=body)["ids"]
        wait_until(
            lambda: not any(client.jobs(state=state, limit=1).items for state in _OPEN),
            "tidegate to end the jobs",
            60 + len(jobs),
        )
        return ids


class Queues(Server):
    """A PostgreSQL with the settings of the embedded stack's, durable, for the other queues."""

    def __init__(self, folder: Path) -> None:
        home = Home(folder)
        home.make()
        self.postgres = Postgres.at(find_postgres(), home.postgres, home.secret(f"{SUPERUSER}.postgres.password"))
        super().__init__(self.postgres.process(home.log("postgres")))

    def __enter__(self) -> Self:
        self.postgres.prepare()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.postgres.clean()

    def url(self, database: str = "postgres") -> str:
        return self.postgres.superuser_url(database)


class Queue:
    """Another queue, with a fresh database and fresh workers in each turn."""

    def __init__(self, name: str, module: str, server: Queues, workers: int) -> None:
        self.name = name
        self._module = module
        self._server = server
        self._workers = workers
        self._peer: Any = importlib.import_module(module)

    def settings(self) -> dict[str, str]:
        return asyncio.run(_settings(self._server.url()))

    def turn(self, jobs: Jobs) -> Turn:
        asyncio.run(
            _execute(self._server.url(), f"DROP DATABASE IF EXISTS {self.name}", f"CREATE DATABASE {self.name}")
        )
        url = self._server.url(self.name)
        asyncio.run(self._peer.install(url))
        words = [sys.executable, "-m", self._module, url]
        workers = [subprocess.Popen(words) for _ in range(self._workers)]
        try:
            asyncio.run(self._run(url, WARM_UP))
            pids = [self._server.pid, *(worker.pid for worker in workers)]
            before, cpu = asyncio.run(_transactions(url)), _cpu(pids)
            began = time.monotonic()
            asyncio.run(self._run(url, jobs))
            took = time.monotonic() - began
            after, cpu = asyncio.run(_transactions(url)), _cpu(pids) - cpu
            codes = asyncio.run(_codes(url))
            wrong = sum(codes.get(number) != code_of(argv) for number, argv in jobs)
            return Turn(len(jobs), took, wrong, after - before, cpu)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(30)

    async def _run(self, url: str, jobs: Jobs) -> None:
        await self._peer.enqueue(url, [(number, list(argv)) for number, argv in jobs])
        connection = await asyncpg.connect(url)
        numbers = [number for number, _ in jobs]
        deadline = time.monotonic() + 60 + len(jobs)
        while await connection.fetchval(self._peer.OPEN) or await connection.fetchval(_MISSING, numbers):
            assert time.monotonic() < deadline, f"{self.name} did not end its jobs"
            await asyncio.sleep(0.1)
        await connection.close()


_MISSING: Final = """
SELECT count(*) FROM unnest($1::bigint[]) AS given (number) WHERE number NOT IN (SELECT number FROM results)
"""


def code_of(argv: tuple[str, ...]) -> int:
    """The exit code that a command has to have."""
    return 0 if argv == ("true",) else int(argv[-1].split()[-1])


def _cpu(pids: Sequence[int]) -> float:
    return sum(cpu_seconds(pid) for pid in pids)


async def _settings(url: str) -> dict[str, str]:
    connection = await asyncpg.connect(url)
    found = {name: await connection.fetchval(f"SHOW {name}") for name in DURABILITY}
    await connection.close()
    return found


async def _transactions(url: str) -> int:
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    count: int = await connection.fetchval("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
    await connection.close()
    return count


async def _codes(url: str) -> dict[int, int]:
    connection = await asyncpg.connect(url)
    found = {row["number"]: row["code"] for row in await connection.fetch("SELECT number, code FROM results")}
    await connection.close()
    return found


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
