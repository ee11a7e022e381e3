"""A port that went to somebody else after it was remembered: nothing is told to who listens there now."""

import asyncio

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from services.api import proxy_target
from tests.integration.api.behind import Process, Watcher, a_workstation, comes_up
from tests.integration.api.conftest import ACME_USER, Answering, RunningApi
from tests.patience import PATIENCE_SECONDS


async def test_a_port_that_is_not_the_workstations_any_more_hears_nothing(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_target, "_KEPT_SECONDS", PATIENCE_SECONDS)
    heard: list[bytes] = []

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    watcher = await Watcher.of(answering)
    workstation = await a_workstation(rin)
    await comes_up(api, rin, workstation)
    path = f"/v1/workstations/{workstation}/proxy/"
    listener = await asyncio.start_server(stranger, "127.0.0.1", 0)
    async with listener:
        for _ in range(2):
            watcher.ports[workstation] = listener.sockets[0].getsockname()[1]
            target = await api.api.proxy.targets.of("acme", await _up(api, workstation))
            assert target.port == watcher.ports[workstation]
            watcher.ports[workstation] = None
            if not heard:
                assert (await rin.get(path)).status_code == 503
                continue
            url = f"{api.url.replace('http', 'ws', 1)}{path}"
            headers = {"Authorization": f"Bearer {ACME_USER}"}
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=headers, proxy=None, open_timeout=PATIENCE_SECONDS):
                    pass
            assert refused.value.response.status_code == 503
    assert heard == [b"", b""], "each was closed before the first byte"
    watcher.ports[workstation] = process.port
    assert (await rin.get(path)).status_code == 200


async def _up(api: RunningApi, workstation: str) -> proxy_target.Up:
    up = await api.api.proxy.targets.up("acme", workstation)
    assert up is not None
    return up
