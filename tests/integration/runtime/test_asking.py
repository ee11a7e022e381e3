"""Queries between services: answers, errors as sentences, and what happens when nobody is there."""

import asyncio
import logging

import pytest

from shared.runtime.errors import RpcError, RpcUnavailable
from tests.integration.runtime.stores import Stores, eventually, running
from tests.patience import PATIENCE_SECONDS


async def test_a_query_is_answered_byte_for_byte(stores: Stores) -> None:
    api, stager = stores.service("api"), stores.service("stager")

    @stager.rpc("echo")
    async def echo(request: bytes) -> bytes:
        return request[::-1]

    async with running(stager, api):
        for body in (b"", b"abc", b'{"a": 1}', bytes(range(256)), b"x" * 500_000):
            assert await api.call("stager", "echo", body, PATIENCE_SECONDS) == body[::-1]


async def test_an_exception_reaches_the_caller_as_its_sentence(stores: Stores) -> None:
    api, stager = stores.service("api"), stores.service("stager")

    @stager.rpc("specs")
    async def specs(request: bytes) -> bytes:
        raise LookupError("no snapshot sha256:1\nhere; upload it first")

    async with running(stager, api):
        with pytest.raises(RpcError, match=r"^no snapshot sha256:1 here; upload it first$"):
            await api.call("stager", "specs", b"", PATIENCE_SECONDS)


async def test_nobody_there_is_known_at_once_and_a_slow_answer_in_time(stores: Stores) -> None:
    api, stager = stores.service("api"), stores.service("stager")

    @stager.rpc("slow")
    async def slow(request: bytes) -> bytes:
        await asyncio.sleep(30)
        return b""

    async with running(api):
        with pytest.raises(RpcUnavailable, match="nobody takes it"):
            await api.call("stager", "slow", b"", timeout=PATIENCE_SECONDS)
        async with running(stager):
            with pytest.raises(RpcUnavailable, match=r"no answer within 0\.2 s"):
                await api.call("stager", "slow", b"", timeout=0.2)


async def test_a_slow_query_does_not_hold_up_the_others(stores: Stores) -> None:
    api, stager = stores.service("api"), stores.service("stager")
    go_on = asyncio.Event()

    @stager.rpc("wait")
    async def wait(request: bytes) -> bytes:
        if request == b"slow":
            await go_on.wait()
        return request

    async with running(stager, api):
        slow = asyncio.create_task(api.call("stager", "wait", b"slow", timeout=PATIENCE_SECONDS))
        assert await api.call("stager", "wait", b"quick", PATIENCE_SECONDS) == b"quick"
        go_on.set()
        assert await slow == b"slow"


async def test_background_work_goes_on_after_an_error(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    api = stores.service("api")
    ran: list[int] = []

    @api.every(0.01)
    async def sweep() -> None:
        ran.append(len(ran))
        if len(ran) == 1:
            raise RuntimeError("only once")

    async with running(api):

        async def again() -> bool:
            return len(ran) > 3

        await eventually(again, "the next ticks")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == ["loop failed"]


async def test_start_work_runs_before_anything_is_answered(stores: Stores) -> None:
    api, stager = stores.service("api"), stores.service("stager")
    ready: list[str] = []

    @stager.on_start
    async def warm() -> None:
        await stager.db.ping()
        ready.append("warm")

    @stager.rpc("state")
    async def state(request: bytes) -> bytes:
        return ",".join(ready).encode()

    async with running(stager, api):
        assert await api.call("stager", "state", b"", PATIENCE_SECONDS) == b"warm"


async def test_capacity_is_published_acknowledged_and_kept_once_per_subject(stores: Stores) -> None:
    watcher = stores.service("watcher")
    async with running(watcher):
        for number in range(3):
            stored = await watcher.publish("clusters.v1.local.capacity", b"%d" % number, stream="CLUSTERS")
            assert stored is not None
            assert stored.last_seq == number + 1
        assert await watcher.publish("logs.v1.acme", b"line") is None
        with pytest.raises(ValueError, match="stored in CLUSTERS, not in FACTS"):
            await watcher.publish("clusters.v1.local.capacity", b"", stream="FACTS")
