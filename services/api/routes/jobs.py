"""Submitting, listing and showing jobs."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json
from services.api.problems import Problem
from services.api.reads import Found
from services.api.submission import Submission
from services.api.submit import Key, New
from services.api.views import job_view
from shared.client.views import JobPage, JobView
from shared.contracts.ids import is_id
from shared.contracts.spec import SubmitRequest
from shared.lifecycle.states import State

router = APIRouter()
MAX_BATCH: Final = 10_000
MAX_PAGE: Final = 200

IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="the same key and request give the same answer for a day")
]


class Batch(BaseModel):
    """Many jobs, all or none."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[SubmitRequest] = Field(min_length=1, max_length=MAX_BATCH)


class BatchAnswer(BaseModel):
    """The ids, in the order of the jobs."""

    ids: list[str]


@router.post("/jobs", status_code=201, responses={201: {"model": JobView}})
async def submit(body: SubmitRequest, api: ApiPart, caller: CallerPart, key: IdempotencyKey = None) -> Response:
    """Submit one job."""

    def answer(new: Sequence[New]) -> str:
        spec = orjson.loads(new[0].spec)
        return orjson.dumps(job_view(new[0].record, spec, api.clock.now(), is_admin=caller.is_admin)).decode()

    view = await api.submitting.submit(caller, Submission([body]), Key.of(key, [body]), answer)
    return Response(view, 201, {"Location": f"/v1/jobs/{orjson.loads(view)['id']}"}, "application/json")


@router.post("/jobs/batch", status_code=201, responses={201: {"model": BatchAnswer}})
async def submit_batch(body: Batch, api: ApiPart, caller: CallerPart, key: IdempotencyKey = None) -> Response:
    """Submit up to 10,000 jobs in one transaction: all of them or none."""

    def answer(new: Sequence[New]) -> str:
        return orjson.dumps({"ids": [one.record.id for one in new]}).decode()

    ids = await api.submitting.submit(caller, Submission(body.jobs), Key.of(key, body.jobs), answer)
    return Response(ids, 201, media_type="application/json")


@router.get("/jobs", responses={200: {"model": JobPage}})
async def page(
    api: ApiPart,
    caller: CallerPart,
    state: Annotated[list[str] | None, Query(description="only these states")] = None,
    name: Annotated[str | None, Query(max_length=100, description="only this name")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(description="the last page's next_cursor")] = None,
) -> Response:
    """The tenant's jobs, newest first."""
    if cursor is not None and not is_id(cursor):
        raise Problem("invalid", f"cursor: {cursor[:40]!r} was given; take next_cursor of the page before, as it is")
    if name is not None and "\0" in name:
        raise Problem("invalid", "name: it holds a NUL character, and no job's name does")
    states = [_state(given) for given in state or ()]
    found = await api.reads.page(caller.tenant, states=states, name=name, before=cursor, limit=limit + 1)
    items = await views(api, caller, found[:limit])
    return as_json({"items": items, "next_cursor": found[limit - 1].record.id if len(found) > limit else None})


@router.get("/jobs/{job}", responses={200: {"model": JobView}})
async def show(job: str, api: ApiPart, caller: CallerPart) -> Response:
    """One job."""
    return as_json((await views(api, caller, [await api.job(caller, job)]))[0])


async def views(api: Api, caller: Caller, found: Sequence[Found]) -> list[dict[str, Any]]:
    """The jobs as they are shown, with their places in the line from one question for all."""
    waiting = [one.record.id for one in found if one.record.state is State.QUEUED]
    stand = await api.asking.positions(waiting)
    now = api.clock.now()
    return [
        job_view(
            one.record,
            one.spec,
            now,
            is_admin=caller.is_admin,
            around=one.around,
            position=stand.positions.get(one.record.id),
            gates=stand.gates.get(one.record.id, ()),
        )
        for one in found
    ]


def _state(given: str) -> State:
    try:
        return State(given.upper())
    except ValueError:
        near = get_close_matches(given.upper(), list(State), 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(State)}"
        raise Problem("invalid", f"state: {given[:40]!r} is no state: {hint}") from None
