"""Several gatekeepers on one database: whoever passes, the gates' row locks make them take turns."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.contracts.queries import PositionsAnswer, PositionsAsked
from shared.lifecycle.facts import FACT
from shared.runtime.database import Database
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.backends.local.harness import Failpoints
from tests.integration.gatekeeper.processes import Deployment, eventually
from tests.integration.gatekeeper.test_as_a_process import a_job, cluster, ready, told, used
from tests.integration.gatekeeper.world import World
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer

ROUNDS = 20


@pytest.fixture
async def made(service_database: FreshDatabase) -> ServiceDatabase:
    return await service_database("gatekeeper")


@pytest.fixture
async def pair(made: ServiceDatabase) -> AsyncIterator[tuple[World, World]]:
    """Two gatekeepers with connections of their own; they share the records of `api`."""
    databases = [Database(made.url, schema="gatekeeper", max_connections=3) for _ in range(2)]
    for database in databases:
        await database.connect()
    first, second = (World(database) for database in databases)
    second.records = first.records
    await first.cluster(gpus=8)
    yield first, second
    for database in databases:
        await database.close()


async def test_two_that_look_at_once_for_room_that_nobody_noticed_admit_each_job_once(
    pair: tuple[World, World],
) -> None:
    first, second = pair
    await first.quota("acme", gpus=0)
    jobs = await first.submit(12, gpus=1)
    assert len(await first.held()) == 12
    await first.db.execute("UPDATE quotas SET gpus = 8 WHERE tenant = 'acme'")
    await asyncio.gather(*(world.gatekeeper.tick() for world in (first, second, first, second)))
    admitted = [fact.job for fact in await first.facts() if fact.kind == "admitted"]
    assert admitted == sorted(jobs)[:8], "in the order of the line"
    assert await first.used() == (8, 8)


async def test_room_that_is_freed_at_two_replicas_at_once_is_seen(pair: tuple[World, World]) -> None:
    first, second = pair
    running = await first.submit(2, gpus=4)
    assert sorted(await first.admitted()) == sorted(running)
    for _ in range(ROUNDS):
        waiting = await first.submit(2, gpus=4)
        assert len(await first.held()) == 2
        await asyncio.gather(*(world.ends(job) for world, job in zip(pair, running, strict=True)))
        assert sorted(await first.admitted()) == sorted(waiting)
        assert await first.used() == await second.used() == (2, 8)
        running = waiting


async def test_places_in_the_line_are_the_same_wherever_they_are_asked_for(pair: tuple[World, World]) -> None:
    first, second = pair
    [running] = await first.submit(gpus=8)
    waiting = sorted([*await first.submit(2, gpus=8), *await second.submit(2, gpus=8)])
    await first.api_applies()
    asked = PositionsAsked(jobs=tuple(waiting)).model_dump_json().encode()

    async def places() -> list[dict[str, int]]:
        answers = await asyncio.gather(*(world.queries.positions(asked) for world in pair))
        return [PositionsAnswer.model_validate_json(answer).positions for answer in answers]

    expected = {job: place for place, job in enumerate(waiting, 1)}
    await asyncio.gather(first.gatekeeper.tick(), second.gatekeeper.tick())
    assert await places() == [expected, expected]
    await asyncio.gather(first.ends(running), second.gatekeeper.tick())
    shorter = {job: place - 1 for job, place in expected.items() if place > 1}
    assert await places() == [shorter, shorter]


async def test_killed_between_commit_and_acknowledgement_another_replica_tells_the_same_admission(
    made: ServiceDatabase, nats_url: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    failpoints = Failpoints(tmp_path / "failpoints")
    deployment = await Deployment.of(made, nats_server, "facts.v1.gatekeeper.>")
    try:
        await cluster(deployment)
        process = deployment.start(**failpoints.environment)
        await ready(deployment)

        async def nothing_to_acknowledge() -> bool:
            consumer = await deployment.streams.consumer_info("CLUSTERS", "gatekeeper_clusters")
            return bool(consumer.num_ack_pending == 0)

        await eventually(nothing_to_acknowledge, "the cluster's report to be done with")
        failpoints.arm("gatekeeper.ack.before")
        job = a_job(gpus=1)
        await deployment.says(job)
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == -signal.SIGKILL
        deployment.start()
        await told(deployment, 1)

        async def told_again() -> bool:
            return len(deployment.bodies) >= 2

        await eventually(told_again, "the event to come again and be answered")
        facts = [FACT.validate_json(body) for body in deployment.bodies]
        assert {(fact.kind, fact.version.n) for fact in facts} == {("admitted", facts[0].version.n)}
        assert (await used(deployment)).slots_used == 1
    finally:
        await deployment.close()
