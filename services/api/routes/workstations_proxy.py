"""The way to a workstation's own pages and sockets, for those whom the door has let in."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.websockets import WebSocket

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart
from services.api.door import caller_of
from services.api.pages import waiting_page
from services.api.problems import Problem
from services.api.proxy import MayGoOn
from services.api.proxy_place import Place
from services.api.proxy_socket import bridge
from services.api.proxy_target import Target, Up
from services.api.routes.workstations import found_one, shown
from services.api.visiting import prefix_of
from services.api.workstations import why_not_up
from shared.runtime.errors import Unavailable

router = APIRouter()
_SHOWN_IN_OPENAPI: Final = [Security(HTTPBearer(auto_error=False))]
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MAY_COME: Final = ("conflict", "unavailable")
_PASSED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "what the workstation's process answers", "content": {"*/*": {}}},
    409: {"description": "it is not up: `phase` and `waiting_on` say why"},
}


@router.get("/workstations/{workstation}/proxy", dependencies=_SHOWN_IN_OPENAPI)
async def bare(workstation: str, api: ApiPart, caller: CallerPart) -> Response:
    """To where relative links are right."""
    await found_one(api, caller, workstation)
    return RedirectResponse(f"{prefix_of(workstation)}/")


async def passed(workstation: str, request: Request, api: ApiPart, caller: CallerPart) -> Response:
    """Pass a request to the workstation's process, and its answer back."""
    try:
        up, target, place = await _way(api, caller, workstation, request)
        confirm = partial(api.proxy.targets.confirm, caller.tenant, up, target)
        return await api.proxy.forward(request, target, place, up, confirm, _stays(api, caller, up, request))
    except Problem as problem:
        if problem.kind in _MAY_COME and request.method == "GET" and _reads_pages(request):
            return waiting_page(problem.detail, problem.status_code, problem.headers or {})
        raise


for method in METHODS:
    router.add_api_route(
        "/workstations/{workstation}/proxy/{path:output}",
        passed,
        methods=[method],
        dependencies=_SHOWN_IN_OPENAPI,
        responses=_PASSED,
    )


@router.websocket("/workstations/{workstation}/proxy/{path:output}")
async def opened(workstation: str, socket: WebSocket, caller: Annotated[Caller, Depends(caller_of)]) -> None:
    """Pass messages both ways."""
    api: Api = socket.app.state.api
    up, target, place = await _way(api, caller, workstation, socket)
    confirm = partial(api.proxy.targets.confirm, caller.tenant, up, target)
    await bridge(socket, api.proxy.targets, target, place, up, confirm, _stays(api, caller, up, socket))


def _reads_pages(request: Request) -> bool:
    """Whether it is a person's browser, whose next page this is."""
    return "text/html" in request.headers.get("accept", "")


async def _way(api: Api, caller: Caller, workstation: str, asked: HTTPConnection) -> tuple[Up, Target, Place]:
    """Raises 409 with what it waits for where it is not up."""
    prefix, path = prefix_of(workstation), asked.scope["raw_path"].decode("ascii")
    if "#" in path or b"#" in asked.scope["query_string"]:
        raise Problem("malformed", "what is asked for has no `#` in it (RFC 9112, section 3.2): write %23")
    if not path.startswith(f"{prefix}/"):
        raise Problem("not-found", f"write the path to a workstation as it is: {prefix}/")
    up = await api.proxy.targets.up(caller.tenant, workstation)
    if up is None:
        view = await shown(api, caller, await found_one(api, caller, workstation))
        told = {name: view[name] for name in ("state", "phase", "gate", "position")}
        raise Problem("conflict", f"{workstation} cannot be reached: {why_not_up(view)}", **told)
    target = await api.proxy.targets.of(caller.tenant, up)
    place = Place(prefix, up.keeps_prefix, target.port, asked.headers.get("host", ""), path.removeprefix(prefix))
    return up, target, place


def _stays(api: Api, caller: Caller, up: Up, asked: HTTPConnection) -> MayGoOn:
    """Whether an open connection may go on: for as long as the same attempt is up, and the caller would be let in."""
    until: datetime | None = asked.scope["state"].get("until")

    async def may_go_on() -> bool:
        if api.feed.closing or (until is not None and until <= api.clock.now()):
            return False
        try:
            return await api.visits.may_stay(caller) and await api.proxy.targets.up(caller.tenant, up.job) == up
        except Unavailable:
            return True  # the database is away: nothing new is known

    return may_go_on
