"""Two gatekeepers as two processes: what they do at once exceeds no limit, not even for a reader in between."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.runtime.database import Database
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.gatekeeper.world import World
from tests.patience import PATIENCE_SECONDS

REPETITIONS = 50
SUM = "SELECT coalesce(sum(gpus) FILTER (WHERE gpus_ended_at IS NULL), 0) FROM gatekeeper.reservations"


class Replica:
    """A gatekeeper's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str) -> "Replica":
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.gatekeeper.replica", url, stdin=pipe, stdout=pipe
        )
        replica = cls(process)
        assert await replica.answer() == "ready"
        return replica

    def send(self, *bodies: bytes) -> None:
        """Have it handle these events in one batch."""
        assert self.process.stdin is not None
        self.process.stdin.write(b" ".join(base64.b64encode(body) for body in bodies) + b"\n")

    async def answer(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


@pytest.fixture
async def database(service_database: FreshDatabase) -> ServiceDatabase:
    return await service_database("gatekeeper")


@pytest.fixture
async def world(database: ServiceDatabase) -> AsyncIterator[World]:
    db = Database(database.url, schema="gatekeeper", max_connections=2)
    await db.connect()
    yield World(db)
    await db.close()


@pytest.fixture
async def replicas(database: ServiceDatabase) -> AsyncIterator[tuple[Replica, Replica]]:
    started = await asyncio.gather(Replica.start(database.url), Replica.start(database.url))
    yield started
    for replica in started:
        await replica.stop()


@pytest.fixture
async def seen(database: ServiceDatabase) -> AsyncIterator[list[int]]:
    """Every sum of reserved GPUs that a reader saw, polling all the time."""
    connection = await asyncpg.connect(database.superuser_url)
    sums: list[int] = []

    async def poll() -> None:
        while True:
            sums.append(await connection.fetchval(SUM))

    polling = asyncio.create_task(poll())
    yield sums
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await connection.close()


@pytest.mark.parametrize("limit", ["quota", "ceiling", "capacity"])
async def test_two_admissions_and_one_free_place_admit_exactly_one(
    world: World, replicas: tuple[Replica, Replica], seen: list[int], limit: str
) -> None:
    await world.cluster(gpus=8 if limit == "capacity" else 1000)
    if limit != "capacity":
        await world.quota("acme" if limit == "quota" else "*", gpus=8)
    await world.submit(gpus=4)
    await world.api_applies()
    for _ in range(REPETITIONS):
        pair = [world.a_job(gpus=4), world.a_job(gpus=4)]
        for replica, job in zip(replicas, pair, strict=True):
            replica.send(world.event(world.records[job]).body)
        assert await asyncio.gather(*(replica.answer() for replica in replicas)) == ["done", "done"]
        told = {fact.job: fact.kind for fact in await world.api_applies()}
        assert sorted(told) == sorted(pair)
        assert sorted(told.values()) == ["admitted", "held"]
        [winner] = [job for job, kind in told.items() if kind == "admitted"]
        await world.ends(winner)
        [loser] = await world.admitted()
        await world.ends(loser)
    assert max(seen) == 8
    assert len(seen) > REPETITIONS


async def test_the_same_event_in_two_replicas_books_once(
    world: World, replicas: tuple[Replica, Replica], seen: list[int]
) -> None:
    await world.cluster(gpus=1000)
    for _ in range(REPETITIONS):
        job = world.a_job(gpus=4)
        for replica in replicas:
            replica.send(world.event(world.records[job]).body)
        assert await asyncio.gather(*(replica.answer() for replica in replicas)) == ["done", "done"]
        facts = {fact.version.n for fact in await world.api_applies()}
        assert len(facts) == 1
        await world.ends(job)
    assert max(seen) == 4


async def test_an_end_and_an_older_event_of_an_attempt_never_heard_of_leave_nothing_booked(
    world: World, replicas: tuple[Replica, Replica]
) -> None:
    await world.cluster(gpus=1000)
    for _ in range(REPETITIONS):
        [job] = await world.submit(gpus=4)
        await world.api_applies()
        await world.ends(job, code=1)
        world.put(job, world.retry())
        running = world.event(world.put(job, *world.launched(job)))
        ended = world.event(world.put(job, *world.ended(job)))
        replicas[0].send(running.body)
        replicas[1].send(ended.body)
        assert await asyncio.gather(*(replica.answer() for replica in replicas)) == ["done", "done"]
    assert await world.used() == (0, 0)


async def test_ends_and_submits_in_two_replicas_at_once_neither_leak_nor_exceed(
    world: World, replicas: tuple[Replica, Replica], seen: list[int]
) -> None:
    await world.cluster(gpus=8)
    running: list[str] = []
    for _ in range(REPETITIONS):
        fresh = [world.a_job(gpus=gpus) for gpus in (1, 2, 4)]
        replicas[0].send(*(world.event(world.records[job]).body for job in fresh))
        replicas[1].send(*(world.event(world.walks(job)).body for job in running))
        assert await asyncio.gather(*(replica.answer() for replica in replicas)) == ["done", "done"]
        running = await world.admitted()
    while running:
        await world.ends(*running)
        running = await world.admitted()
    assert max(seen) <= 8
    assert await world.used() == (0, 0)
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    assert all(record.state == "SUCCEEDED" for record in world.records.values())
