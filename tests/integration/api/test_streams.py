"""Server-sent events: resumed without a gap or a duplicate, from several replicas, ended with job or process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import orjson
import pytest

from services.api import streams as streams_module
from shared.client.sse import EventReader, ServerEvent
from tests.integration.api.conftest import ACME_USER, RunningApi, eventually, running, settings_for
from tests.patience import PATIENCE_SECONDS


class Reader:
    """A client that reads a stream in the background."""

    def __init__(self, response: httpx.Response) -> None:
        self.lines: list[str] = []
        self.ended = asyncio.Event()
        self._task = asyncio.create_task(self._read(response))

    async def _read(self, response: httpx.Response) -> None:
        try:
            async for line in response.aiter_lines():
                self.lines.append(line)
        finally:
            self.ended.set()

    @property
    def events(self) -> list[ServerEvent]:
        return list(EventReader().read(self.lines))

    async def has(self, count: int) -> list[ServerEvent]:
        async def enough() -> bool:
            return len(self.events) >= count

        await eventually(enough, f"{count} events, there are {len(self.events)}")
        return self.events

    def stop(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def reading(client: httpx.AsyncClient, path: str, last_id: str | None = None) -> AsyncIterator[Reader]:
    headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
    async with client.stream("GET", path, headers=headers, timeout=PATIENCE_SECONDS) as response:
        assert response.status_code == 200, await response.aread()
        reader = Reader(response)
        try:
            yield reader
        finally:
            reader.stop()


async def test_a_jobs_stream_tells_everything_and_ends_with_the_job(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    async with reading(rin, f"/v1/jobs/{job}/events") as reader:
        await reader.has(1)
        await rin.post(f"/v1/jobs/{job}/hold", json={})
        await rin.post(f"/v1/jobs/{job}/stop")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.ended.wait()
    told = [(event.event, event.id) for event in reader.events]
    assert told == [("queued", "1-1"), ("held", "1-2"), ("stopped", "1-3")]
    assert orjson.loads(reader.events[-1].data)["job"]["state"] == "STOPPED"


async def test_a_jobs_stream_is_resumed_after_the_last_event(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    await rin.post(f"/v1/jobs/{job}/hold", json={})
    await rin.post(f"/v1/jobs/{job}/stop")
    for last, rest in (("1-1", ["1-2", "1-3"]), ("1-3", []), ("0-0", ["1-1", "1-2", "1-3"])):
        async with reading(rin, f"/v1/jobs/{job}/events", last) as reader:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await reader.ended.wait()
            assert [event.id for event in reader.events] == rest
    wrong = await rin.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "1;2", "Accept": "text/event-stream"})
    assert wrong.status_code == 422


async def test_a_stream_that_breaks_again_and_again_misses_and_repeats_nothing(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    async def write() -> None:
        for _ in range(15):
            await asyncio.gather(api.submit(rin), api.submit(kay), api.submit(rin))

    writing = asyncio.create_task(write())
    seen: list[str] = []
    last = "0"
    while len(seen) < 30:
        async with reading(rin, "/v1/events", last) as reader:
            events = await reader.has(1)
            seen += [str(event.id) for event in events]
            last = seen[-1]
    await writing
    assert seen == [str(position) for position in range(1, 31)]


async def test_a_tenants_stream_shows_that_tenant_only_and_begins_now(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    await api.submit(rin)
    async with reading(rin, "/v1/events") as reader:
        await eventually(lambda: _has_begun(reader), "the stream to begin")
        await api.submit(kay)
        mine = (await api.submit(rin))["id"]
        (event,) = await reader.has(1)
    assert (event.id, orjson.loads(event.data)["job"]["id"]) == ("2", mine)
    ahead = await rin.get("/v1/events", headers={"Last-Event-ID": "99"})
    assert (ahead.status_code, "the last event of tenant acme is 2" in ahead.json()["detail"]) == (422, True)


async def _has_begun(reader: Reader) -> bool:
    return bool(reader.lines)


async def test_a_stream_shows_what_another_replica_commits(
    api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path
) -> None:
    settings = settings_for(api.database, api.nats, tmp_path)
    async with running(settings, api.database, api.nats) as replica:
        other = replica.client(ACME_USER)
        async with reading(other, "/v1/events") as reader:
            await eventually(lambda: _has_begun(reader), "the stream to begin")
            await api.submit(rin)
            await reader.has(1)


async def test_an_idle_stream_is_kept_alive(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_module, "KEEP_ALIVE_SECONDS", 0.05)
    async with reading(rin, "/v1/events") as reader:

        async def alive() -> bool:
            return reader.lines.count(": alive") >= 2

        await eventually(alive, "two keep-alive comments")
        assert reader.events == []


async def test_a_slow_stream_reads_on_from_the_database(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events than are kept in memory, while a stream is open that has read none of them."""
    feed = api.api.feed
    async with feed.tail("acme") as tail:
        jobs = {"jobs": [{"spec": {"command": ["true"]}}] * 1500}
        assert (await rin.post("/v1/jobs/batch", json=jobs)).status_code == 201

        async def read() -> bool:
            return tail.position == 1500

        await eventually(read, "the tail to be read")
        assert tail.after(0) is None
        kept = tail.after(500)
        assert kept is not None
        assert [event.position for event in kept] == list(range(501, 1501))
        async with reading(rin, "/v1/events", "0") as reader:
            events = await reader.has(1500)
    assert [event.id for event in events] == [str(position) for position in range(1, 1501)]


async def test_streams_end_when_the_process_is_to_stop(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    async with (
        reading(rin, "/v1/events") as tenants,
        reading(rin, f"/v1/jobs/{job}/events?follow=forever") as jobs,
    ):
        await eventually(lambda: _has_begun(tenants), "the stream to begin")
        await jobs.has(1)
        api.api.feed.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(tenants.ended.wait(), jobs.ended.wait())


async def test_many_streams_share_one_poller(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = (await api.submit(rin))["id"]
    feed = api.api.feed
    read_singly = 0

    async def counted(tenant: str, after: int) -> list[object]:
        nonlocal read_singly
        read_singly += 1
        return []

    monkeypatch.setattr(feed, "read", counted)
    readers = [reading(rin, "/v1/events") for _ in range(30)]
    opened = [await reader.__aenter__() for reader in readers]
    try:
        for reader in opened:
            await eventually(lambda reader=reader: _has_begun(reader), "the stream to begin")  # type: ignore[misc] # bound on purpose
        await rin.post(f"/v1/jobs/{job}/stop")
        for reader in opened:
            (event,) = await reader.has(1)
            assert event.event == "stopped"
        assert (len(feed._tails), feed._tails["acme"].streams, read_singly) == (1, 30, 0)
    finally:
        for one in readers:
            await one.__aexit__(None, None, None)
