"""What callers and processes of workstations send that is odd, hostile or slow. Each has its answer, none is 500."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from services.api import proxy
from services.api.proxy_headers import WITHHELD
from tests.integration.api.behind import Process, Watcher, to
from tests.integration.api.conftest import ACME_USER, RunningApi, eventually
from tests.patience import PATIENCE_SECONDS


async def _status(api: RunningApi, target: str, *headers: str, host: str = "h") -> int:
    """The status of an answer to what no client would write so."""
    address, _, port = api.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {ACME_USER}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


def _opening(*more: str) -> tuple[str, ...]:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    return ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key, *more)


async def test_where_a_body_ends_and_who_is_asked_is_told_whatever_connection_names(
    rin: httpx.AsyncClient, desk: str
) -> None:
    headers = {"Connection": "content-length, host, content-type", "Content-Type": "text/plain"}
    response = await rin.post(to(desk), content=b"a body", headers=headers)
    assert response.status_code == 200
    seen = response.json()
    found = dict(seen["headers"])
    assert (seen["body"], found["content-length"], found["host"]) == ("a body", "6", rin.base_url.netloc.decode())
    assert "content-type" not in found


async def test_what_no_address_can_be_is_refused_and_what_no_name_can_be_is_not_passed(
    api: RunningApi, desk: str
) -> None:
    assert await _status(api, to(desk, "/socket"), *_opening()) == 101
    for path in ("/socket#part", "/socket?a#part", "/#"):
        assert await _status(api, to(desk, path), *_opening()) == 400, path
    assert await _status(api, to(desk, "/socket"), *_opening("Sec-WebSocket-Protocol: a b, c")) == 400
    for host in ("h:99999", "[:::::]", "h:0", "a name"):
        assert await _status(api, to(desk, "/socket"), *_opening(), host=host) == 101, host


async def test_no_answer_leads_out_of_the_prefix(rin: httpx.AsyncClient, desk: str, process: Process) -> None:
    prefix = to(desk, "")
    for out in ("/..", "/%2e%2E", "\\..", "/.%2e/x/.."):
        address = f"{prefix}{out}/other/proxy/"
        process.answer_headers = [
            (b"location", address.encode()),
            (b"content-location", address.encode()),
            (b"refresh", f"0; url='{address}'".encode()),
            (b"set-cookie", f"a=1; Path={address}".encode()),
        ]
        headers = (await rin.get(to(desk, "/deep/page"))).headers
        below = f"{prefix}/v1/workstations/{desk}/other/proxy/"
        assert (headers["location"], headers["content-location"]) == (below, below), out
        assert (headers["refresh"], headers["set-cookie"]) == (f"0;url={below}", f"a=1; Path={below}"), out
    process.answer_headers = [(b"location", b"../../../jobs"), (b"refresh", b"0;..\\..\\..\\jobs")]
    headers = (await rin.get(to(desk, "/deep/page"))).headers
    assert (headers["location"], headers["refresh"]) == (f"{prefix}/jobs", f"0;url={prefix}/jobs")


WHOLE_ADDRESS = (
    "NEL Report-To Reporting-Endpoints Accept-CH Critical-CH Clear-Site-Data Service-Worker-Allowed Alt-Svc "
    "Strict-Transport-Security Public-Key-Pins Expect-CT Set-Login X-Accel-Redirect X-Sendfile WWW-Authenticate"
)


async def test_nothing_that_acts_on_the_whole_address_is_passed(
    rin: httpx.AsyncClient, desk: str, process: Process
) -> None:
    process.answer_headers = [(name.lower().encode(), b"1") for name in [*WHOLE_ADDRESS.split(), "X-Accel-Buffering"]]
    headers = (await rin.get(to(desk))).headers
    assert not [name for name in WHOLE_ADDRESS.split() if name in headers]
    assert headers["x-accel-buffering"] == "1", "it is about this answer alone"
    assert all(WITHHELD.values()), "each has its reason"


async def test_what_is_no_answer_of_http_is_said_to_be_none_and_each_connection_is_let_go(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, watcher: Watcher
) -> None:
    said, let_go = b"", 0

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal let_go
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await reader.read()
        let_go += 1
        writer.close()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        watcher.ports[desk] = server.sockets[0].getsockname()[1]
        api.api.proxy.targets._known.clear()
        for said in (b"HTTP/1.1 700 Odd\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"nothing\r\n\r\n"):
            assert (await rin.get(to(desk))).status_code == 502, said
        said = b"HTTP/1.1 200 OK\r\nX-Odd: a\x01b\r\nX-Good: 1\r\nContent-Length: 0\r\n\r\n"
        headers = (await rin.get(to(desk))).headers
        assert ("x-odd" in headers, headers["x-good"]) == (False, "1")
        await eventually(lambda: _is(let_go == 4), "each to be closed")


async def test_an_upload_may_take_any_time_and_then_the_answer_has_its_own(
    rin: httpx.AsyncClient, desk: str, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    async def goes_on(seconds: float) -> None:
        nonlocal now
        now += seconds
        before = looks
        await eventually(lambda: _is(looks > before + 1), "it to be looked at")

    async def arrives(size: int) -> None:
        await eventually(lambda: _is(process.read >= size), "a piece to arrive")

    async def body() -> AsyncIterator[bytes]:
        for size in (1024, 2048, 3072):
            yield b"x" * 1024
            await arrives(size)
            await goes_on(400)

    monkeypatch.setattr(proxy, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(proxy, "monotonic", clock)
    asking = asyncio.create_task(rin.put(to(desk, "/thinks"), content=body()))
    await eventually(lambda: _is(process.asked.is_set()), "the process to be asked")
    await goes_on(400)
    process.released.set()
    assert (await asking).text == "well"

    process.asked.clear()
    process.released.clear()
    asking = asyncio.create_task(rin.get(to(desk, "/thinks")))
    await eventually(lambda: _is(process.asked.is_set()), "the process to be asked")
    now += 601
    given_up = await asking
    assert (given_up.status_code, "nothing came for 600 s" in given_up.json()["detail"]) == (502, True)


async def _is(condition: bool) -> bool:
    return condition


async def test_who_waits_for_an_answer_is_let_go_once_the_workstation_is_not_up(
    rin: httpx.AsyncClient, desk: str, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "LOOK_SECONDS", 0.05)
    asking = asyncio.create_task(rin.get(to(desk, "/thinks")))
    await eventually(lambda: _is(process.asked.is_set()), "the process to be asked")
    await rin.post(f"/v1/workstations/{desk}/suspend")
    refused = await asking
    assert (refused.status_code, "not up any more" in refused.json()["detail"]) == (503, True)
