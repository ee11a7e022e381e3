"""Metering as a deployment runs it: lines reach the stream once, across a crash, and its slice answers."""

import signal
from collections.abc import AsyncIterator

import pytest

from shared.contracts.queries import UsageAnswer, UsageAsked
from shared.contracts.usage import decode_line
from tests.databases import FreshDatabase
from tests.integration.gatekeeper.processes import Deployment, eventually
from tests.integration.metering.world import World
from tests.servers import NatsServer


@pytest.fixture
async def deployment(
    service_database: FreshDatabase, nats_url: str, nats_server: NatsServer
) -> AsyncIterator[Deployment]:
    made = await Deployment.of(await service_database("metering"), nats_server, "usage.v1.>")
    yield made
    await made.close()


async def test_a_killed_meter_bills_every_segment_once(deployment: Deployment, world: World) -> None:
    jobs = [world.job(gpus=2) for _ in range(40)]
    events = [event for job in jobs for event in (job.accepted(), job.running("10:00"), job.exited("10:30"))]

    async def say(part: slice) -> None:
        for event in events[part]:
            await deployment.streams.publish(event.subject, event.body)

    async def lines(count: int) -> None:
        async def there() -> bool:
            return len({decode_line(body).id for body in deployment.bodies}) >= count

        await eventually(there, f"{count} lines")

    process = deployment.start()
    await say(slice(0, 60))
    await lines(1)
    await deployment.end(process, signal.SIGKILL)
    await say(slice(60, None))
    process = deployment.start()
    await lines(40)
    asked = UsageAsked(tenant="acme", group_by="job").model_dump_json().encode()
    answer = UsageAnswer.model_validate_json(await deployment.ask("usage", asked))
    assert {row.gpu_milliseconds for row in answer.rows} == {2 * 30 * 60_000}
    assert {row.job for row in answer.rows} == {job.record.id for job in jobs}

    async def stored() -> bool:
        """What is heard as it is published is in the stream with the end of its batch."""
        return (await deployment.streams.stream_info("USAGE")).state.messages >= 40

    await eventually(stored, "the stream to have all lines")
    assert (await deployment.streams.stream_info("USAGE")).state.messages == 40, "and each once"
    assert await deployment.end(process) == 0
