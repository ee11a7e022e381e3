"""Ways to a workstation that break off: what its visitor sees then, and what is let go."""

import asyncio

import httpx
import pytest

from services.api import proxy, proxy_target
from tests.integration.api.behind import Process, to
from tests.integration.api.conftest import ACME_USER, RunningApi, eventually
from tests.patience import PATIENCE_SECONDS


async def _answers(client: httpx.AsyncClient, workstation: str) -> bool:
    return (await client.get(to(workstation))).status_code == 200


async def test_a_silent_answer_is_cut_off_by_a_suspension_and_seen_as_broken(
    rin: httpx.AsyncClient, desk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "LOOK_SECONDS", 0.05)
    async with rin.stream("GET", to(desk, "/halves")) as response:
        await rin.post(f"/v1/workstations/{desk}/suspend")
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            await response.aread()


async def test_an_answer_that_breaks_off_is_never_shown_as_a_whole_one(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asked = f"GET {to(desk, '/breaks')} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ACME_USER}\r\n\r\n"
    writer.write(asked.encode())
    async with asyncio.timeout(PATIENCE_SECONDS):
        came = await reader.read()
    writer.close()
    assert b"first;" in came
    assert b"\r\n0\r\n" not in came, "no last chunk"


async def test_an_answer_whose_redirect_cannot_be_read_is_passed_without_it_and_let_go(
    rin: httpx.AsyncClient, desk: str, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_target, "_AT_ONCE", 1)
    process.status, process.answer_headers = 302, [(b"location", b"http://[")]
    response = await rin.get(to(desk))
    assert (response.status_code, "location" in response.headers) == (302, False)
    process.status, process.answer_headers = 200, []
    await eventually(lambda: _answers(rin, desk), "room for the next")
