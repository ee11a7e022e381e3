"""In front of every route: who asks, and is the body of a size and kind that may be read at all?

Nothing is public, not even the OpenAPI document: what a route forgets to check is refused here. Browsers come in to
workstations, and only there, with a cookie in place of a token (`visiting`).
"""

from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access import Access, Caller
from services.api.problems import Problem
from services.api.sentences import unknown
from services.api.visiting import Visiting, workstation_of
from shared.contracts.snapshot import shown
from shared.runtime.clock import Clock
from shared.runtime.errors import DatabaseUnavailable

MAX_BODY_BYTES: Final = 512 * 1024
_SNAPSHOTS: Final = "/v1/snapshots/"
_BATCH: Final = "/v1/jobs/batch"
_TOKEN_LENGTH: Final = 512


class Door:
    """Middleware that puts the `Caller` into the request's state, or answers itself."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        visiting: Visiting,
        clock: Clock,
        max_batch_bytes: int,
        max_snapshot_bytes: int,
    ) -> None:
        self._app = app
        self._access = access
        self._visiting = visiting
        self._clock = clock
        self._max_batch = max_batch_bytes
        self._max_snapshot = max_snapshot_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, with its body counted; a WebSocket only where its opening shows who asks."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        connection = HTTPConnection(scope)
        path, counted = scope["path"], receive
        try:
            answer = await self._let_in(connection, scope.setdefault("state", {}))
            if answer is not None:
                return await answer(scope, receive, send)
            if scope["type"] == "http" and workstation_of(path) is None:
                counted = self._counted(Request(scope), receive)
        except Problem as problem:
            return await problem.response(path)(scope, receive, send)
        except DatabaseUnavailable:
            return await database_away().response(path)(scope, receive, send)
        return await self._app(scope, counted, send)

    async def _let_in(self, connection: HTTPConnection, state: dict[str, Any]) -> Response | None:
        """Note who asks, by token or, at a workstation, by cookie; the answer to a ticket."""
        workstation = workstation_of(connection.scope["path"])
        if workstation is not None and not _is_bearer(connection):  # JupyterLab's own pages send `token …` beside it
            answer = await self._visiting.entered(connection, workstation, self._clock.now())
            if answer is not None:
                return answer
            visitor = await self._visiting.visitor(connection, workstation, self._clock.now())
            if visitor is not None:
                state["caller"], state["until"] = visitor.caller, visitor.until
                return None
        state["caller"] = await self._caller(connection)
        return None

    async def _caller(self, connection: HTTPConnection) -> Caller:
        token = connection.headers.get("authorization", "").partition(" ")[2]
        if not _is_bearer(connection) or not token.strip():
            raise _unauthenticated("there is no token: send `Authorization: Bearer TOKEN`")
        caller = None if len(token) > _TOKEN_LENGTH else await self._access.who(token.strip())
        if caller is None:
            raise _unauthenticated("this token is unknown or was revoked: ask an admin for another one")
        return caller

    def _counted(self, request: Request, receive: Receive) -> Receive:
        """The body's receiver, which stops at the limit; what is too large by its own word is refused at once."""
        path: str = request.scope["path"]  # what the routes match, whatever a Host header makes of the URL
        limit = self._limit(path)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise _too_large(int(declared), limit, path)
        has_body = declared not in ("", "0") or "transfer-encoding" in request.headers
        if has_body and not path.startswith(_SNAPSHOTS):
            given = request.headers.get("content-type", "")
            if given.partition(";")[0].strip().lower() != "application/json":
                detail = f"the body's Content-Type is {given or 'not given'!r}: send JSON as application/json"
                raise Problem("unsupported-media-type", detail)
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(received, limit, path)
            return message

        return counting

    def _limit(self, path: str) -> int:
        if path.startswith(_SNAPSHOTS):
            return self._max_snapshot
        return self._max_batch if path == _BATCH else MAX_BODY_BYTES


async def caller_of(connection: HTTPConnection) -> Caller:
    """The dependency of every route: refuses where the door let nobody through."""
    caller: Any = connection.scope.get("state", {}).get("caller")
    if not isinstance(caller, Caller):
        raise _unauthenticated("there is no token: send `Authorization: Bearer TOKEN`")
    return caller


async def admin_of(request: Request) -> Caller:
    """The same for what only admins may do."""
    caller = await caller_of(request)
    if not caller.is_admin:
        raise Problem("forbidden", f"{caller.user}'s token has the role user, and this needs the role admin")
    return caller


async def queries_are_known(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a typo is not dropped silently."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = [parameter.alias for parameter in route.dependant.query_params]
    for given in request.query_params:
        if given not in known:
            raise Problem("invalid", f"query: {unknown('parameter', shown(given), known)}")


def database_away() -> Problem:
    """PostgreSQL cannot be reached."""
    detail = "the database cannot be reached: nothing was changed. Running jobs go on; try again in a moment"
    return Problem("unavailable", detail, headers={"Retry-After": "2"}, service="database")


def _is_bearer(connection: HTTPConnection) -> bool:
    """Whether it says who asks in our own way; other kinds of it are a workstation's own."""
    return connection.headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def _unauthenticated(detail: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="tidegate"'})


def _too_large(given: int, limit: int, path: str) -> Problem:
    if path.startswith(_SNAPSHOTS):
        todo = "leave out what the job does not need (.tidegateignore), or raise TIDEGATE_MAX_SNAPSHOT_BYTES"
    elif path == _BATCH:
        todo = "split the batch"
    else:
        todo = "put large content into a file of the submitted directory"
    return Problem("too-large", f"the body has {given} bytes or more, and {limit} are allowed: {todo}")
