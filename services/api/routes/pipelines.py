"""Submitting, listing and showing pipelines, and what may be asked of one as a whole."""

from collections.abc import Sequence
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json
from services.api.domain import Change, take_command
from services.api.permitted import STARTS_AGAIN, decide_steps
from services.api.pipelines_views import Pipelines, new_pipeline, pipeline_view
from services.api.problems import Problem, deleted
from services.api.routes.jobs import IdempotencyKey
from services.api.routes.wishes import NothingBody, PauseBody, RetryBody, StopBody
from services.api.store import Changes
from services.api.submission import Submission
from services.api.submit import Key, New
from shared.client.views import PipelinePage, PipelineView
from shared.contracts.ids import is_id
from shared.contracts.spec import PipelineRequest
from shared.lifecycle.inputs import Delete, Pause, Resume, Retry, Stop
from shared.lifecycle.pipeline import PipelineCommand, word_of

router = APIRouter()
MAX_PAGE: Final = 100


@router.post("/pipelines", status_code=201, responses={201: {"model": PipelineView}})
async def submit(body: PipelineRequest, api: ApiPart, caller: CallerPart, key: IdempotencyKey = None) -> Response:
    """Submit jobs that run one after the other, each in the snapshot and the outputs of all before it."""
    given = Submission.of_steps(body)

    def answer(new: Sequence[New]) -> str:
        name = body.name or given.name(0)
        found = new_pipeline(name, [one.record for one in new])
        return orjson.dumps(pipeline_view(caller.tenant, found, api.clock.now(), is_admin=caller.is_admin)).decode()

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
    now = api.clock.now()
    items = [pipeline_view(caller.tenant, one, now, is_admin=caller.is_admin) for one in found[:limit]]
    return as_json({"items": items, "next_cursor": found[limit - 1].head.id if len(found) > limit else None})


@router.get("/pipelines/{pipeline}", responses={200: {"model": PipelineView}})
async def show(pipeline: str, api: ApiPart, caller: CallerPart) -> Response:
    """One pipeline with its steps."""
    found = await Pipelines(api.database).one(caller.tenant, _checked(pipeline))
    if found is None:
        raise await _no_pipeline(api, caller, pipeline)
    return as_json(pipeline_view(caller.tenant, found, api.clock.now(), is_admin=caller.is_admin))


@router.post("/pipelines/{pipeline}/stop", responses={200: {"model": PipelineView}})
async def stop(pipeline: str, api: ApiPart, caller: CallerPart, body: StopBody | None = None) -> Response:
    """Stop every step that has not ended, as one: those that wait at once, one that runs is asked to end."""
    asked = body or StopBody()
    command = Stop(actor=caller.user, at=api.clock.now(), force=asked.force, grace_seconds=asked.grace_seconds)
    return await _decide(api, caller, pipeline, command)


@router.post("/pipelines/{pipeline}/pause", responses={200: {"model": PipelineView}})
async def pause(pipeline: str, api: ApiPart, caller: CallerPart, body: PauseBody | None = None) -> Response:
    """Pause every step that has not ended, as one, so that the end of the one that runs starts nothing."""
    reason = (body or PauseBody()).reason
    command = Pause(actor=caller.user, at=api.clock.now(), reason=reason, by_admin=caller.is_admin)
    return await _decide(api, caller, pipeline, command)


@router.post("/pipelines/{pipeline}/resume", responses={200: {"model": PipelineView}})
async def resume(pipeline: str, api: ApiPart, caller: CallerPart, body: NothingBody | None = None) -> Response:
    """Let every paused step go on, or none."""
    command = Resume(actor=caller.user, at=api.clock.now(), by_admin=caller.is_admin)
    return await _decide(api, caller, pipeline, command)


@router.post("/pipelines/{pipeline}/retry", responses={200: {"model": PipelineView}})
async def retry(pipeline: str, api: ApiPart, caller: CallerPart, body: RetryBody | None = None) -> Response:
    """Try every step that did not succeed again, or none; the outputs of those that did are used again."""
    command = Retry(actor=caller.user, at=api.clock.now(), force=(body or RetryBody()).force)
    return await _decide(api, caller, pipeline, command)


@router.delete("/pipelines/{pipeline}", status_code=204)
async def delete(pipeline: str, api: ApiPart, caller: CallerPart) -> Response:
    """Forget an ended pipeline with all its steps, as each would be, or none. One that was deleted already is
    deleted."""
    async with api.store.transaction() as tx:
        gone = await _decided(tx, api, caller, pipeline, Delete(actor=caller.user, at=api.clock.now()))
        blobs = [blob for change in gone or () if (blob := await tx.delete(change)) is not None]
    if gone is None and await api.reads.deleted_at(caller.tenant, pipeline) is None:
        raise _not_found(pipeline)
    if blobs:
        await api.stored.remove_soon(blobs)
    return Response(status_code=204)


async def _decide(api: Api, caller: Caller, pipeline: str, command: PipelineCommand) -> Response:
    """The pipeline after the command."""
    async with api.store.transaction() as tx:
        await tx.apply(await _decided(tx, api, caller, pipeline, command) or ())
    return await show(pipeline, api, caller)


async def _decided(
    tx: Changes, api: Api, caller: Caller, pipeline: str, command: PipelineCommand
) -> list[Change] | None:
    """What the command changes of the steps, which one statement locks, or why it is refused; None where there is no
    such pipeline."""
    steps = await tx.lock_pipeline(caller.tenant, _checked(pipeline))
    if not steps:
        return None
    around = await tx.around(steps, keep=command.kind in STARTS_AGAIN)
    now = api.clock.now()
    asked = decide_steps(steps, command, around, now)
    if asked.outcome.what == "refused":
        raise Problem("conflict", f"{command.kind} is not possible: {asked.outcome.why}", word=word_of(steps))
    return [change for step, wish in asked.steps if (change := take_command(step, wish, now)[0]) is not None]


def _is_pipeline(text: str) -> bool:
    return is_id(text) and text.startswith("p")


def _checked(pipeline: str) -> str:
    """The id, once it has the form of one."""
    if not _is_pipeline(pipeline):
        raise _not_found(pipeline)
    return pipeline


async def _no_pipeline(api: Api, caller: Caller, pipeline: str) -> Problem:
    """The answer about a pipeline without steps: one of the caller's that was deleted is told apart."""
    at = await api.reads.deleted_at(caller.tenant, pipeline)
    return _not_found(pipeline) if at is None else deleted(f"pipeline {pipeline}", at)


def _not_found(pipeline: str) -> Problem:
    """The same for an id that is not known and for another tenant's."""
    return Problem("not-found", f"there is no pipeline {pipeline[:60]!r}: GET /v1/pipelines lists those of your tenant")
