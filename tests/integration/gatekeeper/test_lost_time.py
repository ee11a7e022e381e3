"""Events of the lost time that a restored deployment still has in its stream: nothing is booked on their word."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from nats.aio.msg import Msg

from shared.contracts.events import encode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance
from shared.lifecycle.record import JobRecord
from tests.databases import FreshDatabase
from tests.integration.gatekeeper.processes import Deployment, eventually
from tests.integration.gatekeeper.test_as_a_process import a_job
from tests.servers import NatsServer

_RESTORED = "UPDATE gatekeeper.standing SET epoch = 2, backup_at = now()"


@pytest.fixture
async def deployment(
    service_database: FreshDatabase, nats_url: str, nats_server: NatsServer
) -> AsyncIterator[Deployment]:
    made = await Deployment.of(await service_database("gatekeeper"), nats_server, "facts.v1.gatekeeper.>")
    yield made
    await made.close()


def admitted(job: JobRecord) -> JobRecord:
    """In other services' hands: it would be booked even over quota."""
    fact = f.Admitted(
        job=job.id,
        tenant=job.tenant,
        attempt=1,
        version=f.Version(n=1),
        at=job.submitted_at,
        source="test",
        admission=1,
    )
    return advance(job, [fact], job.submitted_at).record


async def open_reservations(deployment: Deployment) -> list[str]:
    connection = await asyncpg.connect(deployment.database.superuser_url)
    try:
        rows = await connection.fetch("SELECT job FROM gatekeeper.reservations WHERE slot_ended_at IS NULL")
        return [row["job"] for row in rows]
    finally:
        await connection.close()


async def test_a_job_of_the_lost_time_is_not_booked_and_one_that_api_knows_is(deployment: Deployment) -> None:
    connection = await asyncpg.connect(deployment.database.superuser_url)
    await connection.execute(_RESTORED)
    await connection.close()
    lost, known, taken_back = (admitted(a_job()) for _ in range(3))
    before = {known.id: known, taken_back.id: a_job().model_copy(update={"id": taken_back.id})}
    records = {job: record.model_copy(update={"epoch": 2, "seq": record.seq + 1}) for job, record in before.items()}
    silences = 1

    async def newest(message: Msg) -> None:
        nonlocal silences
        if silences:  # `api` is not up yet: the events come again
            silences -= 1
            return
        asked = [records[job] for job in NewestAsked.model_validate_json(message.data).jobs if job in records]
        events = tuple(encode_event(record, "reset", record.submitted_at).body.decode() for record in asked)
        await message.respond(NewestAnswer(events=events).model_dump_json().encode())

    await deployment.connection.subscribe("rpc.v1.api.newest", cb=newest)
    await deployment.says(lost, taken_back, known, event="running")
    deployment.start()

    async def booked() -> bool:
        return known.id in await open_reservations(deployment)

    await eventually(booked, "the job that is known to be booked")
    await deployment.says(last := admitted(a_job()).model_copy(update={"epoch": 2}), event="running")

    async def all_handled() -> bool:
        return last.id in await open_reservations(deployment)

    await eventually(all_handled, "every event to be handled")
    assert sorted(await open_reservations(deployment)) == sorted([known.id, last.id])
