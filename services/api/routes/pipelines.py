"""Submitting, listing, showing and stopping pipelines."""

from collections.abc import Sequence
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from services.api.context import ApiPart, CallerPart, as_json
from services.api.domain import Change, take_command
from services.api.pipelines_views import Pipelines, new_view, why_not_stopped
from services.api.problems import Problem
from services.api.routes.jobs import IdempotencyKey
from services.api.routes.wishes import StopBody
from services.api.submission import Submission
from services.api.submit import Key, New
from shared.client.views import PipelinePage, PipelineView
from shared.contracts.ids import is_id
from shared.contracts.spec import PipelineRequest
from shared.lifecycle.inputs import Stop
from shared.lifecycle.pipeline import pipeline_word

router = APIRouter()
MAX_PAGE: Final = 100


@router.post("/pipelines", status_code=201, responses={201: {"model": PipelineView}})
async def submit(body: PipelineRequest, api: ApiPart, caller: CallerPart, key: IdempotencyKey = None) -> Response:
    """Submit jobs that run one after the other, each in the snapshot and the outputs of all before it."""
    given = Submission.of_steps(body)

    def answer(new: Sequence[New]) -> str:
        name = body.name or given.name(0)
        return orjson.dumps(new_view(caller.tenant, name, [one.record for one in new])).decode()

    view = await api.submitting.submit(caller, given, Key.of(key, [body]), answer)
    return Response(view, 201, {"Location": f"/v1/pipelines/{orjson.loads(view)['id']}"}, "application/json")


@router.get("/pipelines", responses={200: {"model": PipelinePage}})
async def page(
    api: ApiPart,
    caller: CallerPart,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(description="the last page's next_cursor")] = None,
) -> Response:
    """The tenant's pipelines, newest first."""
    if cursor is not None and not _is_pipeline(cursor):
        raise Problem("invalid", f"cursor: {cursor[:40]!r} was given; take next_cursor of the page before, as it is")
    found = await Pipelines(api.database).page(caller.tenant, before=cursor, limit=limit + 1)
    return as_json({"items": found[:limit], "next_cursor": found[limit - 1]["id"] if len(found) > limit else None})


@router.get("/pipelines/{pipeline}", responses={200: {"model": PipelineView}})
async def show(pipeline: str, api: ApiPart, caller: CallerPart) -> Response:
    """One pipeline with its steps."""
    if not _is_pipeline(pipeline):
        raise _not_found(pipeline)
    found = await Pipelines(api.database).one(caller.tenant, pipeline)
    if found is None:
        raise _not_found(pipeline)
    return as_json(found)


@router.post("/pipelines/{pipeline}/stop", responses={200: {"model": PipelineView}})
async def stop(pipeline: str, api: ApiPart, caller: CallerPart, body: StopBody | None = None) -> Response:
    """Stop every step that has not ended, as one: those that wait at once, one that runs is asked to end."""
    if not _is_pipeline(pipeline):
        raise _not_found(pipeline)
    asked = body or StopBody()
    now = api.clock.now()
    command = Stop(actor=caller.user, at=now, force=asked.force, grace_seconds=asked.grace_seconds)
    changes: list[Change] = []
    async with api.store.transaction() as tx:
        steps = await tx.lock_pipeline(caller.tenant, pipeline)
        if not steps:
            raise _not_found(pipeline)
        for step in steps:
            change, _ = take_command(step, command, now)
            if change is not None:
                changes.append(change)
        await tx.apply(changes)
    word = pipeline_word([(step.state, step.end_reason) for step in steps])
    if (why_not := why_not_stopped(word)) is not None:
        raise Problem("conflict", f"stop is not possible: {why_not}", word=word)
    return await show(pipeline, api, caller)


def _is_pipeline(text: str) -> bool:
    return is_id(text) and text.startswith("p")


def _not_found(pipeline: str) -> Problem:
    """The same for an id that is not known and for another tenant's."""
    return Problem("not-found", f"there is no pipeline {pipeline[:60]!r}: GET /v1/pipelines lists those of your tenant")
