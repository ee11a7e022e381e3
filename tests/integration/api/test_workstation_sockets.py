"""WebSockets of which one side does not read, and more ways to workstations than there is room for."""

import asyncio
import os

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus

from services.api import proxy_target
from tests.integration.api.behind import Watcher, a_workstation, comes_up, listening, socket_to, to
from tests.integration.api.conftest import ACME_USER, Answering, RunningApi, eventually
from tests.patience import PATIENCE_SECONDS

MESSAGE = os.urandom(1024**2)  # what does not get smaller on the wire
MESSAGES = 200


async def test_a_caller_who_does_not_read_stops_the_process_and_keeps_its_room(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_target, "_SOCKETS_AT_ONCE", 1)
    sent = 0

    async def pours(socket: ServerConnection) -> None:
        nonlocal sent
        for _ in range(MESSAGES):
            await socket.send(MESSAGE)
            sent += 1

    async def stands_still() -> bool:
        before = sent
        await asyncio.sleep(1)
        return 0 < before == sent

    watcher = await Watcher.of(answering)
    workstation = await a_workstation(rin)
    await comes_up(api, rin, workstation)
    url = f"{api.url.replace('http', 'ws', 1)}/v1/workstations/{workstation}/proxy/"
    headers = {"Authorization": f"Bearer {ACME_USER}"}
    async with serve(pours, "127.0.0.1", 0, close_timeout=0.1) as server:
        watcher.ports[workstation] = next(iter(server.sockets)).getsockname()[1]
        opening = connect(
            url, additional_headers=headers, proxy=None, open_timeout=PATIENCE_SECONDS, max_queue=1, close_timeout=0.1
        )
        async with opening:
            await eventually(stands_still, "the process to be kept waiting")
            assert sent < MESSAGES / 2
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=headers, proxy=None, open_timeout=PATIENCE_SECONDS):
                    pass
            assert refused.value.response.status_code == 503


async def test_a_process_that_does_not_read_stops_the_caller(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    sent, over = 0, asyncio.Event()

    async def listens_not(_: ServerConnection) -> None:
        await over.wait()

    async def pours(socket: ClientConnection) -> None:
        nonlocal sent
        for _ in range(MESSAGES):
            await socket.send(MESSAGE)
            sent += 1

    async def stands_still() -> bool:
        before = sent
        await asyncio.sleep(1)
        return 0 < before == sent

    watcher = await Watcher.of(answering)
    workstation = await a_workstation(rin)
    await comes_up(api, rin, workstation)
    async with serve(listens_not, "127.0.0.1", 0, close_timeout=0.1, max_queue=1) as server:
        watcher.ports[workstation] = next(iter(server.sockets)).getsockname()[1]
        async with socket_to(api, workstation, close_timeout=0.1) as socket:
            pouring = asyncio.create_task(pours(socket))
            await eventually(stands_still, "the caller to be kept waiting")
            assert sent < MESSAGES / 2
            pouring.cancel()
            over.set()


async def test_all_workstations_share_the_room_of_a_process(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = await Watcher.of(answering)
    async with listening() as process:
        one, other = await a_workstation(rin), await a_workstation(rin)
        for workstation in (one, other):
            watcher.ports[workstation] = process.port
            await comes_up(api, rin, workstation)
        monkeypatch.setattr(proxy_target, "_SOCKETS_IN_ALL", 1)
        async with socket_to(api, one):
            with pytest.raises(InvalidStatus) as refused:
                async with socket_to(api, other):
                    pass
            assert refused.value.response.status_code == 503
            assert (await rin.get(to(other))).status_code == 200
            monkeypatch.setattr(proxy_target, "_IN_ALL", 1)
            full = await rin.get(to(other))
            assert (full.status_code, "let one end" in full.json()["detail"]) == (503, True)

        async def room() -> bool:
            return (await rin.get(to(other))).status_code == 200

        await eventually(room, "room for the next")
