"""The broker's store is lost: open jobs are told again, and the streams of api, which are PostgreSQL's, never gap."""

import shutil
from pathlib import Path

import nats
import orjson

from shared.runtime.topology import ensure
from tests.databases import FreshDatabase
from tests.integration.api.conftest import ACME_USER, eventually, running, settings_for
from tests.integration.api.test_streams import reading
from tests.servers import NatsServer


async def test_an_emptied_store_makes_api_tell_every_open_job_again(
    service_database: FreshDatabase, own_nats_server: NatsServer, tmp_path: Path
) -> None:
    await _make_streams(own_nats_server)
    database = await service_database("api")
    async with running(settings_for(database, own_nats_server, tmp_path), database, own_nats_server) as api:
        rin = api.client(ACME_USER)
        ended, waiting = [(await api.submit(rin))["id"] for _ in range(2)]
        await rin.post(f"/v1/jobs/{ended}/stop")

        async def all_sent() -> bool:
            return not await api.service.db.fetchval("SELECT count(*) FROM events WHERE sent_at IS NULL")

        await eventually(all_sent, "all events to be sent")
        async with reading(rin, "/v1/events", "0") as reader:
            own_nats_server.stop()
            shutil.rmtree(own_nats_server.store)
            own_nats_server.start()
            await _make_streams(own_nats_server)
            events = await reader.has(4)
        assert [(event.event, event.id) for event in events[:4]] == [
            ("queued", "1"),
            ("queued", "2"),
            ("stopped", "3"),
            ("reset", "4"),
        ]
        assert orjson.loads(events[3].data)["job"]["id"] == waiting
        await eventually(all_sent, "all events to be sent again")


async def _make_streams(server: NatsServer) -> None:
    connection = await nats.connect(server.url, **server.login("admin"))
    try:
        await ensure(connection.jetstream())
    finally:
        await connection.close()
