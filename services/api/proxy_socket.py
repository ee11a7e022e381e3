"""WebSockets on their way to a workstation's process and back."""

import asyncio
import re
from collections.abc import Coroutine
from socket import AF_INET, SOCK_STREAM
from socket import socket as Socket
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.typing import Origin, Subprotocol

from services.api.problems import Problem
from services.api.proxy import LOOK_SECONDS, Confirm, MayGoOn
from services.api.proxy_headers import asked, asked_for_a_socket
from services.api.proxy_place import Place
from services.api.proxy_target import Target, Targets, Up, not_listening

_LARGEST_MESSAGE_BYTES: Final = 4 * 1024**2
_FRAMES_AHEAD: Final = 1  # of the process behind; more are read once the caller has taken these
_OPEN_SECONDS: Final = 10.0
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:]+\](:[0-9]+)?")
_GOING_AWAY: Final = 1001
_REASON_BYTES: Final = 123  # RFC 6455, section 5.5
_NEVER_SENT: Final = frozenset({1005, 1006, 1015})


class _Straight(connect):
    """Follows no redirect: the process behind must not choose where this server connects to."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


async def bridge(
    socket: WebSocket, targets: Targets, target: Target, place: Place, up: Up, confirm: Confirm, may_go_on: MayGoOn
) -> None:
    """Pass messages both ways until one side ends, or `may_go_on` says no. `confirm` is asked once the connection is
    open and before anything is sent. A message that one side does not take keeps the other waiting. Raises before the
    caller is answered where the process behind takes no WebSocket."""
    with targets.room(up.job), targets.room_for_a_socket(up.job):
        try:
            behind = await _connected(socket, target, place, confirm)
        except InvalidStatus as error:
            code = error.response.status_code
            raise Problem("service-error", f"the workstation's process refused the WebSocket with {code}") from None
        except (InvalidHandshake, InvalidMessage, EOFError, TimeoutError) as error:
            raise Problem("service-error", f"the workstation's process speaks no WebSocket there: {error}") from None
        except OSError:
            targets.forget(up)
            raise not_listening(up.job) from None
        async with behind:
            await socket.accept(behind.subprotocol)
            code, reason = await _first(_outward(socket, behind), _inward(socket, behind), _ended(may_go_on))
            code = _GOING_AWAY if code in _NEVER_SENT else code
            await behind.close(code, reason)
        await _close(socket, code, reason)


async def _connected(socket: WebSocket, target: Target, place: Place, confirm: Confirm) -> ClientConnection:
    client = "" if socket.client is None else socket.client.host
    scheme = "https" if socket.scope["scheme"] == "wss" else "http"
    headers = asked(socket.headers.raw, place, client=client, scheme=scheme, secret=target.secret)
    path = place.target(socket.scope["query_string"]).decode("ascii")
    origin = socket.headers.get("origin")
    return await _Straight(
        f"ws://{_shown_as(place.host, target.port)}{path}",  # for the Host header: the connection is the one below
        sock=await _opened(target.port, confirm),
        origin=None if origin is None else Origin(origin),
        subprotocols=[Subprotocol(name) for name in socket.scope["subprotocols"]] or None,
        additional_headers=asked_for_a_socket(headers),
        user_agent_header=None,
        compression=None,
        proxy=None,
        open_timeout=_OPEN_SECONDS,
        ping_interval=None,  # the caller's side has one, and the process behind is on this machine
        max_size=_LARGEST_MESSAGE_BYTES,
        max_queue=_FRAMES_AHEAD,
    )


def _shown_as(host: str, port: int) -> str:
    """The caller's Host header, where it is one that an address can have."""
    try:
        good = _HOST.fullmatch(host) and urlsplit(f"//{host}").port != 0
    except ValueError:
        good = False
    return host if good else f"127.0.0.1:{port}"


async def _opened(port: int, confirm: Confirm) -> Socket:
    opened = Socket(AF_INET, SOCK_STREAM)
    try:
        opened.setblocking(False)
        async with asyncio.timeout(_OPEN_SECONDS):
            await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
            await confirm()
    except BaseException:
        opened.close()
        raise
    return opened


async def _outward(socket: WebSocket, behind: ClientConnection) -> tuple[int, str]:
    """To the process, until the caller leaves."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return message.get("code", _GOING_AWAY), message.get("reason") or ""
        text = message.get("text")
        try:
            await behind.send(message["bytes"] if text is None else text)
        except ConnectionClosed:
            return _of(behind)


async def _inward(socket: WebSocket, behind: ClientConnection) -> tuple[int, str]:
    """To the caller, until the process leaves."""
    try:
        while True:
            message = await behind.recv()
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)
    except ConnectionClosed:
        return _of(behind)
    except (WebSocketDisconnect, RuntimeError):  # the caller is gone
        return _GOING_AWAY, ""


async def _ended(may_go_on: MayGoOn) -> tuple[int, str]:
    """Once the workstation is not up any more, or who is here may not be here any more."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not await may_go_on():
            return _GOING_AWAY, "the workstation is not up any more, or your visit is over"


def _of(behind: ClientConnection) -> tuple[int, str]:
    return behind.close_code or _GOING_AWAY, behind.close_reason or ""


async def _first(*ways: Coroutine[Any, Any, tuple[int, str]]) -> tuple[int, str]:
    """What the first of them ends with; the others are ended."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    short = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
    try:
        await socket.close(code, short)
    except (WebSocketDisconnect, RuntimeError):
        return  # the caller left first
