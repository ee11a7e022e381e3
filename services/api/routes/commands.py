"""What a person may ask of a job. Decided under the row's lock, so that the answer is final."""

from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json, checked_id
from services.api.permitted import STARTS_AGAIN, decide
from services.api.problems import Problem, job_not_found
from services.api.reads import Found
from services.api.routes.jobs import views
from services.api.routes.wishes import HoldBody, NothingBody, PauseBody, RetryBody, StopBody
from services.api.store import Changes
from shared.client.views import JobView
from shared.lifecycle.inputs import AnyCommand, Delete, Hold, Pause, Release, Resume, Retry, Stop
from shared.lifecycle.outcome import Outcome
from shared.lifecycle.record import JobRecord

router = APIRouter()
SHOWN: Final[dict[int | str, dict[str, Any]]] = {200: {"model": JobView}}


@router.post("/jobs/{job}/stop", responses=SHOWN)
async def stop(job: str, api: ApiPart, caller: CallerPart, body: StopBody | None = None) -> Response:
    """Stop it: a waiting job at once; a running one is asked to end, and its outputs so far are copied back."""
    asked = body or StopBody()
    command = Stop(actor=caller.user, at=api.clock.now(), force=asked.force, grace_seconds=asked.grace_seconds)
    return await _decide(api, caller, job, command)


@router.post("/jobs/{job}/pause", responses=SHOWN)
async def pause(job: str, api: ApiPart, caller: CallerPart, body: PauseBody | None = None) -> Response:
    """Pause it: a waiting job at once; a running one is asked to save its state and to end, its outputs are kept and
    its GPUs freed. What an admin has paused, only an admin resumes."""
    reason = (body or PauseBody()).reason
    command = Pause(actor=caller.user, at=api.clock.now(), reason=reason, by_admin=caller.is_admin)
    return await _decide(api, caller, job, command)


@router.post("/jobs/{job}/resume", responses=SHOWN)
async def resume(job: str, api: ApiPart, caller: CallerPart, body: NothingBody | None = None) -> Response:
    """Let a paused job go on: it waits at the gates again, as the next attempt of the same run."""
    return await _decide(api, caller, job, Resume(actor=caller.user, at=api.clock.now(), by_admin=caller.is_admin))


@router.post("/jobs/{job}/retry", responses=SHOWN)
async def retry(job: str, api: ApiPart, caller: CallerPart, body: RetryBody | None = None) -> Response:
    """Try a failed or stopped job again, as the next attempt of the same run. `force`: also where nobody can prove that
    its lost attempt is gone."""
    force = (body or RetryBody()).force
    return await _decide(api, caller, job, Retry(actor=caller.user, at=api.clock.now(), force=force))


@router.post("/jobs/{job}/hold", responses=SHOWN)
async def hold(job: str, api: ApiPart, caller: CallerPart, body: HoldBody | None = None) -> Response:
    """Keep a waiting job back until it is released."""
    reason = (body or HoldBody()).reason
    command = Hold(actor=caller.user, at=api.clock.now(), reason=reason, by_admin=caller.is_admin)
    return await _decide(api, caller, job, command)


@router.post("/jobs/{job}/release", responses=SHOWN)
async def release(job: str, api: ApiPart, caller: CallerPart, body: NothingBody | None = None) -> Response:
    """Let a held job go on."""
    return await _decide(api, caller, job, Release(actor=caller.user, at=api.clock.now(), by_admin=caller.is_admin))


@router.delete("/jobs/{job}", status_code=204)
async def delete(job: str, api: ApiPart, caller: CallerPart) -> Response:
    """Forget an ended job: its record, its outputs, and what it had submitted where no other job has submitted the
    same. One that was deleted already is deleted."""
    now = api.clock.now()
    async with api.store.transaction() as tx:
        record = await tx.lock_one(caller.tenant, checked_id(job))
        blob = None if record is None else await _forget(tx, record, Delete(actor=caller.user, at=now), now)
    if record is None and await api.reads.deleted_at(caller.tenant, job) is None:
        raise job_not_found(job)
    if blob is not None:
        await api.stored.remove_soon([blob])
    return Response(status_code=204)


async def _forget(tx: Changes, record: JobRecord, command: Delete, now: datetime) -> str | None:
    """Delete a locked job, or say why not; the name of the blob to remove after the commit."""
    around = await tx.around([record], keep=False)
    change, outcome = decide(record, command, around[record.id], now)
    if change is None:
        raise Problem("conflict", f"delete is not possible: {outcome.why}", state=record.state)
    return await tx.delete(change)


async def _decide(api: Api, caller: Caller, job: str, command: AnyCommand) -> Response:
    return as_json((await views(api, caller, [await decided(api, caller, job, command)]))[0])


async def decided(api: Api, caller: Caller, job: str, command: AnyCommand, *, called: str | None = None) -> Found:
    """The job after the command. What is so already is no error; what is refused is, with the sentence why. `called`:
    the name that it was asked by, where that is another."""
    change, outcome = None, Outcome("refused")
    async with api.store.transaction() as tx:
        record = await tx.lock_one(caller.tenant, checked_id(job))
        if record is not None:
            around = await tx.around([record], keep=command.kind in STARTS_AGAIN)
            change, outcome = decide(record, command, around[job], api.clock.now())
        if change is not None:
            await tx.apply([change])
    if record is None:
        raise await api.no_job(caller, job)
    if outcome.what == "refused":
        raise Problem("conflict", f"{called or command.kind} is not possible: {outcome.why}", state=record.state)
    found = await api.job(caller, job)
    return found if change is None else Found(change.record, found.spec, found.around)
