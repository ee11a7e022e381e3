"""Two replicas of the api: any answers anything, one log, one of them does what one must do for all."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import httpx
from nats.js import JetStreamContext

from services.api.domain import replay
from services.api.resets import Resets
from shared.contracts.events import decode_event
from tests.databases import FreshDatabase
from tests.integration.api.conftest import ACME_USER, RunningApi, running, settings_for
from tests.integration.api.test_streams import reading
from tests.servers import NatsServer


async def test_two_replicas_write_one_log_that_both_stream(
    api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path
) -> None:
    settings = settings_for(api.database, api.nats, tmp_path, replica="another")
    async with running(settings, api.database, api.nats) as other:
        too = other.client(ACME_USER)
        jobs = [(await api.submit(rin))["id"] for _ in range(4)]
        async with reading(rin, "/v1/events", "0") as here, reading(too, "/v1/events", "0") as there:
            await asyncio.gather(*(_moved(api, client, job) for job in jobs for client in (rin, too)))
            for job in jobs:
                await api.becomes(too, job, "SUBMITTED")
            count = await api.service.db.fetchval("SELECT count(*) FROM events")
            ours, theirs = await here.has(count), await there.has(count)
    assert [event.id for event in ours] == [str(position) for position in range(1, count + 1)]
    assert [(event.id, event.data) for event in theirs] == [(event.id, event.data) for event in ours]
    for job in jobs:
        log = await api.api.reads.inputs(job)
        found = await api.api.reads.job("acme", job)
        assert found is not None
        assert replay(decode_event(log[0][0]).job, [entry[1:] for entry in log[1:]]) == found.record


async def _moved(api: RunningApi, client: httpx.AsyncClient, job: str) -> None:
    """Held and released by two at once, and let through meanwhile."""
    await client.post(f"/v1/jobs/{job}/hold", json={})
    await client.post(f"/v1/jobs/{job}/release")
    api.facts_sent += 1
    await api.report("admitted", job, admission=api.facts_sent)


async def test_another_replica_goes_on_with_what_one_does_for_all(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    database = await service_database("api")

    def replica(name: str) -> AbstractAsyncContextManager[RunningApi]:
        return running(settings_for(database, nats_server, tmp_path, replica=name), database, nats_server)

    async with AsyncExitStack() as stays:
        async with replica("first") as first:
            await first.leads()
            second = await stays.enter_async_context(replica("second"))
            rin = second.client(ACME_USER)
            job = (await second.submit(rin))["id"]
            resets = Resets(second.service.db, second.api.store, second.service.clock, second.lease)
        await resets.ask()
        async with reading(rin, f"/v1/jobs/{job}/events") as reader:
            assert [event.event for event in await reader.has(2)] == ["queued", "reset"]
