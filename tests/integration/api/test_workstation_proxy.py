"""The way to a workstation's process: what passes, and where it leads."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from services.api import proxy, proxy_socket, proxy_target
from tests.integration.api.behind import (
    FLOWS,
    SECRET,
    Process,
    Watcher,
    a_workstation,
    a_workstation_up,
    comes_up,
    goes_down,
    listening,
    socket_to,
    to,
)
from tests.integration.api.conftest import ACME_USER, RunningApi, eventually
from tests.patience import PATIENCE_SECONDS


async def test_passes_a_request_as_it_is_but_for_the_prefix(rin: httpx.AsyncClient, desk: str) -> None:
    request = rin.build_request(
        "PATCH", to(desk, "/a%2Fb/c%20d?x=%26&x=2"), content=b"a body", headers={"X-Of-Mine": "1"}
    )
    seen = (await rin.send(request)).json()
    assert (seen["method"], seen["target"], seen["body"]) == ("PATCH", "/a%2Fb/c%20d?x=%26&x=2", "a body")
    assert ["x-of-mine", "1"] in seen["headers"]


async def test_the_process_sees_the_ports_secret_and_never_the_callers_token(rin: httpx.AsyncClient, desk: str) -> None:
    headers = {"Cookie": "tidegate-workstation=x; own=1", "Connection": "keep-alive, X-Hop", "X-Hop": "1"}
    seen = (await rin.get(to(desk), headers=headers | {"X-Forwarded-Prefix": "/evil"})).json()
    found = dict(seen["headers"])
    assert found["authorization"] == f"token {SECRET}"
    assert found["cookie"] == "own=1"
    assert found["x-forwarded-prefix"] == to(desk, "")
    assert found["host"] == rin.base_url.netloc.decode()
    assert "x-hop" not in found
    assert ACME_USER not in json.dumps(seen)


async def test_a_command_that_keeps_the_prefix_gets_the_whole_path(
    api: RunningApi, rin: httpx.AsyncClient, process: Process, watcher: Watcher
) -> None:
    workstation = await a_workstation_up(api, rin, process, watcher, keeps_prefix=True)
    assert (await rin.get(to(workstation, "/lab?x=1"))).json()["target"] == to(workstation, "/lab?x=1")


async def test_answers_stream_through_piece_by_piece(rin: httpx.AsyncClient, desk: str, process: Process) -> None:
    async with rin.stream("GET", to(desk, "/halves")) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"first;"
        process.released.set()
        assert b"".join([piece async for piece in pieces]) == b"second"


async def test_bodies_stream_through_piece_by_piece_and_of_any_size(
    rin: httpx.AsyncClient, desk: str, process: Process
) -> None:
    arrived = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1024
        await eventually(lambda: _is(process.read >= 1024), "the first piece to arrive before the last is sent")
        arrived.set()
        for _ in range(64):
            yield b"y" * 65536

    response = await rin.put(to(desk, "/count"), content=body())
    assert arrived.is_set()
    assert response.text == str(1024 + 64 * 65536)


async def _is(condition: bool) -> bool:
    return condition


async def test_the_processs_own_answers_are_passed_as_they_are(
    rin: httpx.AsyncClient, desk: str, process: Process
) -> None:
    for status in (200, 304, 404, 500):
        process.status = status
        response = await rin.get(to(desk))
        assert (response.status_code, response.content == b"") == (status, status == 304)
    assert (await rin.head(to(desk))).content == b""


async def test_what_it_answers_stays_below_its_prefix(rin: httpx.AsyncClient, desk: str, process: Process) -> None:
    process.answer_headers = [
        (b"location", b"/login"),
        (b"set-cookie", b"a=1; Path=/; Domain=tidegate.example; HttpOnly"),
        (b"set-cookie", b"tidegate-workstation=mine; Path=/v1"),
        (b"service-worker-allowed", b"/"),
        (b"clear-site-data", b'"*"'),
        (b"x-of-its-own", b"kept"),
        (b"connection", b"x-hop"),
        (b"x-hop", b"1"),
    ]
    response = await rin.get(to(desk))
    assert response.headers["location"] == to(desk, "/login")
    assert response.headers.get_list("set-cookie") == [f"a=1; HttpOnly; Path={to(desk, '/')}"]
    assert response.headers["x-of-its-own"] == "kept"
    assert not {"service-worker-allowed", "clear-site-data", "x-hop"} & set(response.headers)


async def test_a_websocket_passes_both_ways(api: RunningApi, desk: str) -> None:
    async with socket_to(api, desk, Origin="https://elsewhere.example") as socket:
        opened = json.loads(await socket.recv())
        assert opened["target"] == "/socket"
        found = dict(opened["headers"])
        assert (found["authorization"], found["x-forwarded-prefix"]) == (f"token {SECRET}", to(desk, ""))
        assert (found["host"], found["origin"]) == (api.url.removeprefix("http://"), "https://elsewhere.example")
        assert ACME_USER not in json.dumps(opened)
        for message in ("text", b"bytes", "x" * 300_000):
            await socket.send(message)
            assert await socket.recv() == message
        await socket.send("leave")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert (socket.close_code, socket.close_reason) == (4321, "asked to")


async def test_a_websocket_has_the_subprotocol_that_the_process_chose(api: RunningApi, desk: str) -> None:
    url = f"{api.url.replace('http', 'ws', 1)}{to(desk, '/socket')}"
    headers = {"Authorization": f"Bearer {ACME_USER}"}
    wanted = [Subprotocol("v1.kernel"), Subprotocol("other")]
    async with connect(
        url, additional_headers=headers, subprotocols=wanted, proxy=None, open_timeout=PATIENCE_SECONDS
    ) as socket:
        assert socket.subprotocol == "v1.kernel"


async def test_a_process_cannot_lead_the_server_elsewhere(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, process: Process
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with socket_to(api, desk, "/elsewhere"):
            pass
    assert refused.value.response.status_code == 502
    process.status, process.answer_headers = 302, [(b"location", b"http://127.0.0.1:1/x"), (b"set-cookie", b"s=1")]
    response = await rin.get(to(desk))
    assert (response.status_code, response.headers["location"]) == (302, "http://127.0.0.1:1/x")
    process.status, process.answer_headers = 200, []
    fresh = api.client(ACME_USER)
    assert "cookie" not in dict((await fresh.get(to(desk))).json()["headers"])


async def test_asks_for_the_current_attempt_only_and_not_for_each_request(
    rin: httpx.AsyncClient, desk: str, watcher: Watcher
) -> None:
    for _ in range(3):
        await rin.get(to(desk))
    assert 1 <= len(watcher.asked) < 3 or (watcher.asked[0].tenant, watcher.asked[0].attempt) == ("acme", 1)
    assert {(asked.tenant, asked.job, asked.attempt) for asked in watcher.asked} == {("acme", desk, 1)}


async def test_says_what_it_waits_for_while_it_is_not_up(
    api: RunningApi, rin: httpx.AsyncClient, watcher: Watcher
) -> None:
    workstation = await a_workstation(rin)
    gate = {"name": "capacity", "reason": "needs 1 GPU; 0 are free", "scope": "cluster local", "lifted_by": "time"}
    await api.report("held", workstation, gates=[gate])
    await eventually(lambda: _waits(rin, workstation), "the gate to be told")
    refused = await rin.get(to(workstation))
    assert refused.status_code == 409
    assert "waits on capacity: needs 1 GPU; 0 are free" in refused.json()["detail"]
    assert (refused.json()["state"], refused.json()["gate"]["name"]) == ("QUEUED", "capacity")
    with pytest.raises(InvalidStatus) as closed:
        async with socket_to(api, workstation):
            pass
    assert closed.value.response.status_code == 409
    assert watcher.asked == []


async def _waits(client: httpx.AsyncClient, workstation: str) -> bool:
    return (await client.get(f"/v1/workstations/{workstation}")).json()["gate"] is not None


async def test_says_so_while_its_command_does_not_listen_yet(
    rin: httpx.AsyncClient, desk: str, watcher: Watcher, process: Process
) -> None:
    watcher.ports[desk] = None
    early = await rin.get(to(desk))
    assert (early.status_code, "$TIDEGATE_PORT" in early.json()["detail"]) == (503, True)
    async with listening() as other:
        watcher.ports[desk] = other.port
    nobody = await rin.get(to(desk))  # the other process has ended
    assert (nobody.status_code, "$TIDEGATE_PORT" in nobody.json()["detail"]) == (503, True)
    watcher.ports[desk] = process.port
    assert (await rin.get(to(desk))).status_code == 200, "a port on which nobody listens is not remembered"


async def test_a_suspension_and_a_stop_close_the_way_and_what_is_open(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_socket, "LOOK_SECONDS", 0.05)
    async with socket_to(api, desk) as socket:
        await socket.recv()
        await rin.post(f"/v1/workstations/{desk}/suspend")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1001
    refused = await rin.get(to(desk))
    assert (refused.status_code, refused.json()["phase"]) == (409, "suspending")
    await goes_down(api, desk)
    await api.becomes(rin, desk, "PAUSED")
    refused = await rin.get(to(desk))
    assert (refused.status_code, "tidegate workstation resume" in refused.json()["detail"]) == (409, True)
    await rin.post(f"/v1/workstations/{desk}/resume")
    asked = len(watcher.asked)
    await comes_up(api, rin, desk, attempt=2)
    assert (await rin.get(to(desk))).status_code == 200
    assert {one.attempt for one in watcher.asked[asked:]} == {2}, "the endpoint of an attempt is not another's"
    await rin.post(f"/v1/workstations/{desk}/stop")
    refused = await rin.get(to(desk))
    assert (refused.status_code, "it is being stopped" in refused.json()["detail"]) == (409, True)


async def test_a_stream_that_flows_is_cut_off_by_a_suspension(
    rin: httpx.AsyncClient, desk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "LOOK_SECONDS", 0.05)
    async with rin.stream("GET", to(desk, "/flows")) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        await rin.post(f"/v1/workstations/{desk}/suspend")
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            assert sum([len(piece) async for piece in pieces]) < (FLOWS - 1) * len(b"more")


async def test_only_so_many_requests_to_one_workstation_are_open_at_once(
    rin: httpx.AsyncClient, desk: str, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_target, "_AT_ONCE", 1)
    async with rin.stream("GET", to(desk, "/halves")) as response:
        assert response.status_code == 200
        full = await rin.get(to(desk))
        assert (full.status_code, "let one end" in full.json()["detail"]) == (503, True)
        process.released.set()
        await response.aread()
    await eventually(lambda: _answers(rin, desk), "room for the next")


async def _answers(client: httpx.AsyncClient, workstation: str) -> bool:
    return (await client.get(to(workstation))).status_code == 200


async def test_revoking_the_token_closes_what_is_open(
    api: RunningApi, ada: httpx.AsyncClient, desk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_socket, "LOOK_SECONDS", 0.05)
    made = (await ada.post("/v1/tokens", json={"tenant": "acme", "user": "lee"})).json()
    async with socket_to(api, desk, Authorization=f"Bearer {made['token']}") as socket:
        await socket.recv()
        await ada.delete(f"/v1/tokens/{made['id']}")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
