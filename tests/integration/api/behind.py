"""Workstations that are up, for tests of the way to them: their process, and the watcher that says where it listens."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import httpx
import uvicorn
from websockets.asyncio.client import connect

from shared.contracts.queries import EndpointAnswer, EndpointAsked
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:  # its fixtures are made of what is here
    from tests.integration.api.conftest import Answering, RunningApi

ACME_USER = "token-of-rin-for-tests"

SECRET = "the-secret-of-the-port"
FLOWS = 9_000
"""Pieces that `/flows` sends, 10 ms or more between them."""
SEGMENT = {"submission": "s1", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Raw = list[tuple[bytes, bytes]]


class Server(uvicorn.Server):
    """One in the loop of a test."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The signals are the test run's."""
        yield


@dataclass
class Process:
    """What stands for a workstation's command: it shows what reached it, and answers as it is told."""

    port: int = 0
    answer_headers: Raw = field(default_factory=list)
    status: int = 200
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the second half of `/halves` go, and the answer of `/thinks`."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """`/thinks` has the whole of a request."""
    read: int = 0
    """Bytes of `/count` and `/thinks` that were read so far."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        match scope["type"], scope["path"].rpartition("/")[2]:
            case "websocket", _:
                await self._echo(scope, receive, send)
            case "http", "halves":
                await self._halves(send)
            case "http", "breaks":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"first;", "more_body": True})
            case "http", "flows":
                await self._flow(send)
            case "http", "thinks":
                await self._think(receive, send)
            case "http", "count":
                await self._count(receive, send)
            case "http", _:
                await self._show(scope, receive, send)

    async def _show(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        seen = {
            "method": scope["method"],
            "target": _target(scope),
            "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
            "body": body.decode(),
        }
        shown = json.dumps(seen).encode()
        headers = [*self.answer_headers, (b"content-length", str(len(shown)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else shown})

    async def _halves(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first;", "more_body": True})
        await self.released.wait()
        await send({"type": "http.response.body", "body": b"second"})

    async def _flow(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(FLOWS):
            if self.released.is_set():
                return  # nobody hears it
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b""})

    async def _count(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            self.read += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(self.read).encode()})

    async def _think(self, receive: Receive, send: Send) -> None:
        """Says nothing before it is released."""
        while (message := await receive()).get("more_body"):
            self.read += len(message["body"])
        self.asked.set()
        await self.released.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"well"})

    async def _echo(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"].endswith("elsewhere"):
            headers = [(b"location", b"ws://127.0.0.1:1/")]
            await send({"type": "websocket.http.response.start", "status": 302, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b""})
            return
        await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
        seen = [[name.decode(), value.decode()] for name, value in scope["headers"]]
        shown = json.dumps({"target": _target(scope), "headers": seen})
        await send({"type": "websocket.send", "text": shown})
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "leave":
                await send({"type": "websocket.close", "code": 4321, "reason": "asked to"})
                return
            kept = {name: message[name] for name in ("text", "bytes") if message.get(name) is not None}
            await send({"type": "websocket.send", **kept})


def _target(scope: dict[str, Any]) -> str:
    path, query = scope["raw_path"].decode(), scope["query_string"].decode()
    return f"{path}?{query}" if query else f"{path}"


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Process]:
    """A process on a port of its own."""
    process = Process()
    config = uvicorn.Config(cast(Any, process), port=0, lifespan="off", log_config=None, access_log=False)
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not serving.done(), "uvicorn ended while starting"
            await asyncio.sleep(0.01)
        process.port = server.servers[0].sockets[0].getsockname()[1]
        yield process
    finally:
        process.released.set()
        server.should_exit = True
        await serving


@dataclass
class Watcher:
    """Answers where workstations listen; `asked` is what it was asked."""

    ports: dict[str, int | None] = field(default_factory=dict)
    asked: list[EndpointAsked] = field(default_factory=list)

    @classmethod
    async def of(cls, answering: "Answering") -> "Watcher":
        """One that hears the queries."""
        watcher = cls()

        def reply(request: bytes) -> bytes:
            asked = EndpointAsked.model_validate_json(request)
            watcher.asked.append(asked)
            port = watcher.ports.get(asked.job)
            return EndpointAnswer(port=port, secret=None if port is None else SECRET).model_dump_json().encode()

        await answering("watcher", "endpoint", reply)
        return watcher


async def a_workstation(client: httpx.AsyncClient, **given: Any) -> str:
    """One that waits at the gates."""
    response = await client.post("/v1/workstations", json={"command": ["serve"], **given})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def comes_up(api: "RunningApi", client: httpx.AsyncClient, workstation: str, *, attempt: int = 1) -> None:
    """The facts of an attempt that runs."""
    await api.report("admitted", workstation, attempt=attempt, admission=attempt)
    segment = SEGMENT | {"submission": f"s{attempt}"}
    await api.report(
        "seen_running", workstation, attempt=attempt, segment=segment, started_at=datetime.now(UTC), raw_state="R"
    )
    await api.becomes(client, workstation, "RUNNING")


async def a_workstation_up(
    api: "RunningApi", client: httpx.AsyncClient, process: Process, watcher: Watcher, **given: Any
) -> str:
    """One that is reached at the process."""
    workstation = await a_workstation(client, **given)
    watcher.ports[workstation] = process.port
    await comes_up(api, client, workstation)
    return workstation


async def goes_down(api: "RunningApi", workstation: str, *, attempt: int = 1) -> None:
    """The facts of an attempt that ended at our wish, its workspace kept."""
    segment, now = SEGMENT | {"submission": f"s{attempt}"}, datetime.now(UTC)
    ended: dict[str, Any] = {"signal": 15, "started_at": now, "ended_at": now, "raw_state": "E", "stop_recorded": True}
    await api.report("exited", workstation, attempt=attempt, segment=segment, **ended)
    await api.report("staging_sealed", workstation, attempt=attempt, staged=True, outcome="none")
    await api.report("gpus_freed", workstation, attempt=attempt)
    await api.report("launcher_sealed", workstation, attempt=attempt, ran=True)


def to(workstation: str, path: str = "/") -> str:
    """The path to what a workstation serves."""
    return f"/v1/workstations/{workstation}/proxy{path}"


def socket_to(
    api: "RunningApi", workstation: str, path: str = "/socket", *, close_timeout: float | None = 10, **more: str
) -> connect:
    """A WebSocket to it, as a user of acme, which sends its messages as they are."""
    url = f"{api.url.replace('http', 'ws', 1)}{to(workstation, path)}"
    return connect(
        url,
        additional_headers={"Authorization": f"Bearer {ACME_USER}"} | more,
        compression=None,
        proxy=None,
        open_timeout=PATIENCE_SECONDS,
        close_timeout=close_timeout,
    )
