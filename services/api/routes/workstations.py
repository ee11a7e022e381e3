"""Workstations: starting, listing and showing them, and what a person may ask of one. Each is a job of its own kind."""

import shutil
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json, checked_id
from services.api.problems import Problem
from services.api.proxy_place import TICKET
from services.api.reads import Found
from services.api.routes.commands import decided
from services.api.routes.jobs import IdempotencyKey, views
from services.api.routes.wishes import NothingBody, PauseBody, StopBody
from services.api.sentences import invalid
from services.api.submission import Submission
from services.api.submit import Key, New
from services.api.views import job_view
from services.api.visiting import prefix_of
from services.api.workstations import JUPYTER, JUPYTER_PROGRAMS, NO_JUPYTER, NOT_HERE, workstation_view
from shared.client.workstations import Ticket, WorkstationPage, WorkstationView
from shared.contracts.ids import is_id
from shared.contracts.spec import SubmitRequest
from shared.contracts.workstations import WorkstationRequest
from shared.lifecycle.inputs import AnyCommand, Pause, Resume, Snooze, Stop
from shared.lifecycle.record import Workstation
from shared.lifecycle.states import TERMINAL

router = APIRouter()
SHOWN: dict[int | str, dict[str, Any]] = {200: {"model": WorkstationView}}


class SnoozeBody(BaseModel):
    """For how long it is not suspended for being idle, from now on."""

    model_config = ConfigDict(extra="forbid")

    seconds: StrictInt = Field(default=1800, ge=60, le=86_400)


@router.post("/workstations", status_code=201, responses={201: {"model": WorkstationView}})
async def start(body: WorkstationRequest, api: ApiPart, caller: CallerPart, key: IdempotencyKey = None) -> Response:
    """Start one: it passes the same gates and stages as any job."""

    def answer(new: Sequence[New]) -> str:
        view = job_view(new[0].record, orjson.loads(new[0].spec), api.clock.now(), is_admin=caller.is_admin)
        return orjson.dumps(workstation_view(view)).decode()

    request, keeps_prefix = _submitted(api, body)
    workstation = Workstation(idle_suspend_seconds=body.idle_suspend_seconds, keeps_prefix=keeps_prefix)
    given = Submission([request], workstation=workstation)
    view = await api.submitting.submit(caller, given, Key.of(key, [body]), answer)
    return Response(view, 201, {"Location": f"/v1/workstations/{orjson.loads(view)['id']}"}, "application/json")


@router.get("/workstations", responses={200: {"model": WorkstationPage}})
async def page(
    api: ApiPart,
    caller: CallerPart,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(description="the last page's next_cursor")] = None,
) -> Response:
    """The tenant's workstations, newest first."""
    if cursor is not None and not is_id(cursor):
        raise Problem("invalid", f"cursor: {cursor[:40]!r} was given; take next_cursor of the page before, as it is")
    found = await api.reads.page(
        caller.tenant, states=(), name=None, kind="workstation", before=cursor, limit=limit + 1
    )
    items = [workstation_view(view) for view in await views(api, caller, found[:limit])]
    return as_json({"items": items, "next_cursor": found[limit - 1].record.id if len(found) > limit else None})


@router.get("/workstations/{workstation}", responses=SHOWN)
async def show(workstation: str, api: ApiPart, caller: CallerPart) -> Response:
    """One workstation."""
    return as_json(await shown(api, caller, await found_one(api, caller, workstation)))


@router.post("/workstations/{workstation}/suspend", responses=SHOWN)
async def suspend(workstation: str, api: ApiPart, caller: CallerPart, body: PauseBody | None = None) -> Response:
    """Suspend it: its workspace is kept, its GPUs, slot and meter are freed."""
    reason = (body or PauseBody()).reason
    command = Pause(actor=caller.user, at=api.clock.now(), reason=reason, by_admin=caller.is_admin)
    return await _decide(api, caller, workstation, command)


@router.post("/workstations/{workstation}/resume", responses=SHOWN)
async def resume(workstation: str, api: ApiPart, caller: CallerPart, body: NothingBody | None = None) -> Response:
    """Bring it up again: it waits at the gates, then its workspace lies where it was."""
    command = Resume(actor=caller.user, at=api.clock.now(), by_admin=caller.is_admin)
    return await _decide(api, caller, workstation, command)


@router.post("/workstations/{workstation}/snooze", responses=SHOWN)
async def snooze(workstation: str, api: ApiPart, caller: CallerPart, body: SnoozeBody | None = None) -> Response:
    """Put off that it is suspended for being idle."""
    now = api.clock.now()
    until = now + timedelta(seconds=(body or SnoozeBody()).seconds)
    command = Snooze(actor=caller.user, at=now, until=until)
    return await _decide(api, caller, workstation, command)


@router.post("/workstations/{workstation}/stop", responses=SHOWN)
async def stop(workstation: str, api: ApiPart, caller: CallerPart, body: StopBody | None = None) -> Response:
    """End it; its workspace is kept as its outputs."""
    asked = body or StopBody()
    command = Stop(actor=caller.user, at=api.clock.now(), force=asked.force, grace_seconds=asked.grace_seconds)
    return await _decide(api, caller, workstation, command)


@router.post("/workstations/{workstation}/ticket", status_code=201, responses={201: {"model": Ticket}})
async def ticket(workstation: str, api: ApiPart, caller: CallerPart, body: NothingBody | None = None) -> Response:
    """An address for a browser: good once, and soon not any more. It lets its reader in as the token's holder, to this
    workstation only."""
    record = (await found_one(api, caller, workstation)).record
    if record.state in TERMINAL:
        raise Problem("conflict", f"{workstation} is {record.state}: there is nothing to visit", state=record.state)
    given, until = await api.visits.ticket(caller, workstation, api.clock.now())
    return as_json({"url": f"{prefix_of(workstation)}/?{TICKET}={given}", "expires_at": until}, 201)


async def found_one(api: Api, caller: Caller, workstation: str) -> Found:
    """The caller's workstation; a job that is none is as unknown as an id that never was."""
    found = await api.reads.job(caller.tenant, workstation) if is_id(workstation) else None
    if found is None or found.record.kind != "workstation":
        detail = f"there is no workstation {workstation[:60]!r}: GET /v1/workstations lists those of your tenant"
        raise Problem("not-found", detail)
    return found


async def shown(api: Api, caller: Caller, found: Found) -> dict[str, Any]:
    """As it is shown now."""
    return workstation_view((await views(api, caller, [found]))[0])


async def _decide(api: Api, caller: Caller, workstation: str, command: AnyCommand) -> Response:
    await found_one(api, caller, workstation)
    called = "suspend" if isinstance(command, Pause) else None
    found = await decided(api, caller, checked_id(workstation), command, called=called)
    return as_json(await shown(api, caller, found))


def _submitted(api: Api, body: WorkstationRequest) -> tuple[SubmitRequest, bool]:
    """The job, and whether its command expects the prefix in its paths."""
    if not api.settings.workstations:
        raise Problem("can-never-run", NOT_HERE)
    jupyter = body.command is None
    if jupyter and not all(shutil.which(program, path=api.job_path) for program in JUPYTER_PROGRAMS):
        raise Problem("invalid", NO_JUPYTER)
    try:
        spec = body.spec(body.command or JUPYTER)
    except ValidationError as error:
        raise invalid(error.errors(), WorkstationRequest) from None
    name = body.name or ("jupyterlab" if jupyter else None)
    return SubmitRequest(spec=spec, name=name, project=body.project), body.keeps_prefix or jupyter
