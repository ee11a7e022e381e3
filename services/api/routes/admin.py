"""Tokens, orphans, dead letters, who one is, and the description of all routes."""

import re
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from services.api.context import AdminPart, ApiPart, CallerPart, as_json
from services.api.orphans import orphans
from services.api.problems import Problem
from shared.contracts.given import Name
from shared.contracts.subjects import SERVICES

router = APIRouter()
_TOKEN_ID: Final = re.compile(r"t[0-9a-z]{26}")
_LARGEST: Final = 2**62

Letter = Annotated[int, Path(ge=1, le=_LARGEST)]


class NewToken(BaseModel):
    """Whose token it is to be."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(min_length=1, max_length=40)
    user: Name
    role: Literal["user", "admin"] = "user"
    name: Name | None = None


@router.get("/whoami")
async def whoami(caller: CallerPart) -> Response:
    """Whose token this is."""
    return as_json({"tenant": caller.tenant, "user": caller.user, "role": caller.role, "token_id": caller.token_id})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: CallerPart) -> Response:
    """The description of all routes (OpenAPI 3.1)."""
    return as_json(request.app.openapi())


@router.get("/tokens")
async def tokens(api: ApiPart, caller: AdminPart) -> Response:
    """All tokens, without their values."""
    return as_json({"items": await api.access.tokens()})


@router.post("/tokens", status_code=201)
async def create(body: NewToken, api: ApiPart, caller: AdminPart) -> Response:
    """Make a token, and the tenant where it is new. The answer shows it for the only time."""
    token_id, token = await api.access.create(body.tenant, body.user, body.role, body.name, api.clock.now())
    return as_json({"id": token_id, "token": token, **body.model_dump()}, 201)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke(token_id: str, api: ApiPart, caller: AdminPart) -> Response:
    """Make a token worthless at once."""
    if not _TOKEN_ID.fullmatch(token_id) or not await api.access.revoke(token_id, api.clock.now()):
        raise Problem("not-found", f"there is no token {token_id[:60]!r}: GET /v1/tokens lists their ids")
    return Response(status_code=204)


@router.get("/orphans")
async def orphaned(api: ApiPart, caller: AdminPart) -> Response:
    """Facts of jobs that are not in the database, the newest first; `total` counts those that are not shown, too."""
    items, total = await orphans(api.database)
    return as_json({"items": items, "total": total})


@router.get("/dead-letters")
async def dead_letters(api: ApiPart, caller: AdminPart) -> Response:
    """What kept failing, of every service; `unreachable` names those that did not answer."""
    letters, silent = await api.asking.dead_letters()
    return as_json({"items": letters, "unreachable": silent})


@router.get("/dead-letters/{service}/{number}")
async def dead_letter(service: str, number: Letter, api: ApiPart, caller: AdminPart) -> Response:
    """One of them, with its body and error."""
    return as_json(await api.asking.dead_letter(_service(service), "show", number))


@router.post("/dead-letters/{service}/{number}/retry")
async def retry(service: str, number: Letter, api: ApiPart, caller: AdminPart) -> Response:
    """Have its service handle it now; what went wrong again is the answer's `error`."""
    answer = await api.asking.dead_letter(_service(service), "retry", number)
    if answer.get("error") is not None:
        raise Problem("conflict", f"it failed again: {answer['error']}")
    return as_json(answer)


def _service(name: str) -> str:
    if name not in SERVICES:
        raise Problem("not-found", f"there is no service {name[:40]!r}: there are {', '.join(SERVICES)}")
    return name
