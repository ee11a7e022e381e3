"""The probes answer from a thread of their own, and say what is missing."""

import asyncio
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from shared.runtime import health
from shared.runtime.errors import SettingsError
from shared.runtime.health import Health
from shared.runtime.service import Service
from tests.integration.runtime.stores import Received, Stores, a_message, enqueue, eventually, running
from tests.patience import PATIENCE_SECONDS


def asked(service: Service, path: str) -> tuple[int, bytes]:
    """Status and body of one probe."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{service.health.port}{path}", timeout=PATIENCE_SECONDS
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def asked_until_unwell(service: Service, path: str) -> tuple[int, bytes]:
    """Probe until the answer is another than 200; not for ever."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := asked(service, path))[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


async def alive(service: Service) -> bool:
    """Whether /healthz says so."""
    return (await asyncio.to_thread(asked, service, "/healthz"))[0] == 200


async def ready(service: Service) -> Any:
    """What /readyz says."""
    return orjson.loads((await asyncio.to_thread(asked, service, "/readyz"))[1])


async def test_is_ready_while_both_stores_are_there_and_names_the_one_that_is_not(stores: Stores) -> None:
    api = stores.service("api")
    async with running(api):

        async def well() -> bool:
            return await asyncio.to_thread(asked, api, "/readyz") == (200, b'{"ready":true,"missing":[]}')

        await eventually(well, "/readyz to be well")

        async def missing(word: str) -> bool:
            return any(part.startswith(word) for part in (await ready(api))["missing"])

        stores.nats.kill()
        await eventually(lambda: missing("broker"), "/readyz to miss the broker")
        assert (await asyncio.to_thread(asked, api, "/readyz"))[0] == 503
        await eventually(lambda: alive(api), "/healthz to be well all the same")
        await asyncio.to_thread(stores.nats.start)
        stores.postgres.kill()
        await eventually(lambda: missing("database"), "/readyz to miss the database")
        await asyncio.to_thread(stores.postgres.start)
        await eventually(well, "/readyz to be well again")


async def test_a_stuck_event_loop_is_seen_from_outside(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    api = stores.service("api")
    monkeypatch.setattr(health, "HEARTBEAT_LIMIT_SECONDS", 0.5)
    monkeypatch.setattr(health, "_HEARTBEAT_SECONDS", 0.1)
    async with running(api):
        await eventually(lambda: alive(api), "/healthz to be well")
        with ThreadPoolExecutor(1) as probe:
            probing = probe.submit(asked_until_unwell, api, "/healthz")
            status, body = probing.result()  # the event loop stands still: the fault that it is for
        assert (status, b"the event loop has not run" in body) == (503, True)


async def test_metrics_count_and_carry_no_subject_and_no_id(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    gatekeeper.consume("gatekeeper")(received)
    async with running(gatekeeper, api):
        await enqueue(api, [a_message("j01secretid", key="j01secretid")])
        await received.all(["j01secretid"])

        async def counted() -> bool:
            text = (await asyncio.to_thread(asked, api, "/metrics"))[1].decode()
            return all(line in text for line in lines)

        lines = ('tidegate_consumer_handled_total{consumer="gatekeeper"', "tidegate_relay_published_total{otel_scope")
        await eventually(counted, "the counters")
        status, body = await asyncio.to_thread(asked, api, "/metrics")
    text = body.decode()
    assert status == 200
    assert "secretid" not in text
    assert "jobs.v1" not in text


async def test_a_port_that_is_taken_is_named(stores: Stores) -> None:
    api = stores.service("api")
    async with running(api):
        other = Health(api.health.port, api._missing)
        with pytest.raises(
            SettingsError, match=rf"^TIDEGATE_HEALTH_PORT: {api.health.port} on 127\.0\.0\.1 cannot be had"
        ):
            other.start()


async def test_other_paths_say_what_there_is(stores: Stores) -> None:
    api = stores.service("api")
    async with running(api):
        status, body = await asyncio.to_thread(asked, api, "/health")
    assert (status, b"/healthz, /readyz and /metrics" in body) == (404, True)
