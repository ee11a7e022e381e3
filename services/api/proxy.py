"""Requests on their way to a workstation's process and back, in pieces: nothing is kept whole.

The transport is used without a client around it: no cookie of one workstation is kept for another, no redirect is
followed, no setting of the environment leads elsewhere. Each request has a connection of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any, Final, TypeVar

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.api.problems import Problem
from services.api.proxy_headers import answered, asked
from services.api.proxy_place import Place
from services.api.proxy_target import Target, Targets, Up, not_listening

LOOK_SECONDS: Final = 5.0
"""How often it is looked whether an open connection may go on."""
_CONNECT_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 600.0
"""How long nothing may come of a request, and then nothing of an answer."""
_STATUSES: Final = range(200, 600)  # RFC 9110, section 15; uvicorn writes no other

T = TypeVar("T")
Confirm = Callable[[], Awaitable[None]]
MayGoOn = Callable[[], Awaitable[bool]]


class Proxy:
    """The way to the processes of workstations."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=limits)

    async def close(self) -> None:
        """Let go of what is open."""
        await self._http.aclose()

    async def forward(
        self, request: Request, target: Target, place: Place, up: Up, confirm: Confirm, may_go_on: MayGoOn
    ) -> Response:
        """The answer of the process behind, as it comes. `confirm` is asked once the connection is open and before
        anything is sent. Cut off once `may_go_on` says no, before it begins too."""
        async with AsyncExitStack() as kept:
            kept.enter_context(self.targets.room(up.job))
            body = _Body(request)

            async def may_be_awaited() -> bool:
                if monotonic() - body.moved_at > _SILENT_SECONDS:
                    raise TimeoutError(f"nothing came for {_SILENT_SECONDS:.0f} s")
                return await may_go_on()

            try:
                asking = self._http.handle_async_request(_request(request, body, target, place, confirm))
                answer = await _while(may_be_awaited, asking)
            except httpx.ConnectError:
                self.targets.forget(up)
                raise not_listening(up.job) from None
            except _Over:
                raise Problem("unavailable", "the workstation is not up any more, or your visit is over") from None
            except (httpx.TransportError, TimeoutError) as error:
                raise _broken(error) from None
            except ClientDisconnect:
                return Response(status_code=499)  # nobody hears it
            kept.push_async_callback(answer.aclose)
            if answer.status_code == httpx.codes.SWITCHING_PROTOCOLS:
                raise _broken(ValueError("it changed the protocol, which nobody asked for"))
            if answer.status_code not in _STATUSES:
                raise _broken(ValueError(f"{answer.status_code} is no status"))
            passed = _Passed(answer, list(answered(answer.headers.raw, place)), may_go_on)
            passed.kept = kept.pop_all()
            return passed


class _Over(Exception):
    """What was under way may not go on."""


async def _while(may_go_on: MayGoOn, way: Coroutine[Any, Any, T]) -> T:
    """What the way ends with. Looks whether it may go on also while nothing flows; raises `_Over` once it may not."""
    going = asyncio.create_task(way)
    try:
        while not (await asyncio.wait([going], timeout=LOOK_SECONDS))[0]:
            if not await may_go_on() and not going.done():  # what came meanwhile is the caller's to close
                raise _Over
        return going.result()
    finally:
        if not going.done():
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)


class _Passed(StreamingResponse):
    """An answer as it is on the wire, compressed where it is. One that breaks off behind breaks off for the caller: no
    end is written, and so uvicorn closes the connection."""

    def __init__(self, answer: httpx.Response, headers: list[tuple[bytes, bytes]], may_go_on: MayGoOn) -> None:
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        super().__init__(answer.stream, answer.status_code)
        self.raw_headers = headers
        self.kept = AsyncExitStack()
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.kept:
            try:
                await _while(self._may_go_on, super().__call__(scope, receive, send))
            except (httpx.TransportError, _Over):
                return


def _request(request: Request, body: "_Body", target: Target, place: Place, confirm: Confirm) -> httpx.Request:
    client = "" if request.client is None else request.client.host
    headers = asked(request.headers.raw, place, client=client, scheme=request.url.scheme, secret=target.secret)
    if "transfer-encoding" in request.headers:
        headers.append((b"transfer-encoding", b"chunked"))
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    return httpx.Request(
        request.method,
        f"http://127.0.0.1:{target.port}/",
        headers=headers,
        stream=body if has_body else httpx.ByteStream(b""),
        extensions={
            "target": place.target(request.scope["query_string"]),  # as it came, not as httpx would write it
            "trace": _before_the_first_byte(confirm),
            "timeout": {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None},
        },
    )


def _before_the_first_byte(confirm: Confirm) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
    """A hook of httpcore, which goes on with a connection that is open only after it has returned."""

    async def traced(event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            try:
                await confirm()
            except BaseException:
                await info["return_value"].aclose()
                raise

    return traced


class _Body(httpx.AsyncByteStream):
    """A request's body. `moved_at` is when something of it came last."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.moved_at = monotonic()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._request.stream():
            self.moved_at = monotonic()  # at the end a piece without bytes comes
            if piece:
                yield piece


def _broken(error: Exception) -> Problem:
    said = str(error) or type(error).__name__
    return Problem("service-error", f"the workstation's process did not answer as HTTP does: {said[:200]}")
