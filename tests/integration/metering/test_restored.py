"""The database was taken back in time: what was billed since is billed once, with the numbers that are right."""

from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.contracts.events import decode_event, encode_event
from shared.contracts.queries import UsageAnswer, UsageAsked
from shared.contracts.usage import UsageLine, decode_line
from shared.runtime.messages import Delivery
from tests.databases import FreshDatabase
from tests.integration.gatekeeper.processes import Deployment, eventually
from tests.integration.metering.world import DAY, Job, World
from tests.servers import NatsServer

MINUTE = 60_000


@pytest.fixture
async def deployment(
    service_database: FreshDatabase, nats_url: str, nats_server: NatsServer
) -> AsyncIterator[Deployment]:
    made = await Deployment.of(await service_database("metering"), nats_server, "usage.v1.>")
    yield made
    await made.close()


async def taken_back(deployment: Deployment) -> None:
    """To before anything was metered."""
    connection = await asyncpg.connect(deployment.database.superuser_url)
    try:
        await connection.execute("TRUNCATE metering.segments, metering.outbox, metering.relayed")
        await connection.execute("UPDATE metering.standing SET epoch = 2, restoring = true, backup_at = now()")
    finally:
        await connection.close()


async def say(deployment: Deployment, *events: Delivery) -> None:
    for event in events:
        await deployment.streams.publish(event.subject, event.body)


def again(job: Job) -> Delivery:
    """What `api` says of the record in the new epoch."""
    record = job.record.model_copy(update={"epoch": 2, "seq": 1})
    wire = encode_event(record, "reset", DAY)
    return job.world.delivery(wire.subject, wire.body)


async def usage(deployment: Deployment) -> dict[str, int]:
    asked = UsageAsked(tenant="acme", group_by="job").model_dump_json().encode()
    answer = UsageAnswer.model_validate_json(await deployment.ask("usage", asked))
    return {str(row.job): row.gpu_milliseconds for row in answer.rows}


def ledger(deployment: Deployment) -> dict[str, UsageLine]:
    """As a subscriber keeps it: the first line of each id."""
    lines: dict[str, UsageLine] = {}
    for body in deployment.bodies:
        line = decode_line(body)
        assert lines.setdefault(line.id, line) == line, "an id never gets other numbers"
    return lines


async def test_what_was_billed_in_the_lost_time_is_not_billed_again(deployment: Deployment, world: World) -> None:
    same, other, gone = world.job(), world.job(), world.job()
    for job in (same, gone):
        await say(deployment, job.accepted(), job.running("10:00"), job.exited("10:30"))
    await say(deployment, other.accepted(), other.running("10:00", seen="10:10"), other.lost())
    process = deployment.start()

    async def billed(count: int) -> bool:
        return len(ledger(deployment)) >= count

    await eventually(lambda: billed(3), "three lines")
    assert await deployment.end(process) == 0
    await taken_back(deployment)
    other.exited("10:20")
    fresh = world.job()
    deployment.start()
    await say(deployment, again(same), again(other), fresh.accepted(), fresh.running("10:00"), fresh.exited("10:05"))
    await eventually(lambda: billed(6), "a reversal, the right line, and the new job's")
    right = {
        same.record.id: 30 * MINUTE, gone.record.id: 30 * MINUTE, other.record.id: 20 * MINUTE,
        fresh.record.id: 5 * MINUTE,
    }  # fmt: skip
    sums: Counter[str] = Counter()
    for line in ledger(deployment).values():
        sums[line.job] += line.gpu_milliseconds
    assert sums == right
    assert await usage(deployment) == right, "the job that the database has lost is there, too"
    assert decode_event(again(same).body).job.epoch == 2
