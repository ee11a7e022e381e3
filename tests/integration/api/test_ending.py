"""The door of a process of `api`: handed down by whoever starts it, and not shut on those who are in already."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn

from services.api.__main__ import Server, handed_down
from services.api.feed import Feed
from shared.runtime.errors import SettingsError
from tests.patience import PATIENCE_SECONDS


async def _answer(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """An application that has one answer."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_socket_that_was_handed_down_takes_connections_from_then_on() -> None:
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        with (
            handed_down(given.fileno()) as door,
            socket.create_connection(door.getsockname(), timeout=PATIENCE_SECONDS),
        ):
            given.detach()


@pytest.mark.parametrize("kind", ["a file", "nothing"])
def test_a_descriptor_that_is_no_socket_is_refused_by_its_variable(kind: str) -> None:
    with open("/dev/null") as file, pytest.raises(SettingsError, match="TIDEGATE_HTTP_FD"):
        handed_down(file.fileno() if kind == "a file" else 999_999)


async def test_whoever_got_a_connection_is_answered_though_the_request_comes_after_the_end_was_asked_for() -> None:
    config = uvicorn.Config(cast(Any, _answer), port=0, lifespan="off", log_config=None, access_log=False)
    config.load()
    server = Server(config, cast(Feed, None))
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.server_state.connections:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        ending = asyncio.create_task(server.shutdown())
        await asyncio.sleep(0.1)
        writer.write(b"GET / HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        await ending
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"ok")
