"""What a person may ask of a job. Decided under the row's lock, so that the answer is final."""

from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, WithJsonSchema
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json, checked_id
from services.api.domain import take_command
from services.api.problems import Problem, job_not_found
from services.api.reads import Found
from services.api.routes.jobs import views
from shared.client.views import JobView
from shared.contracts.given import printable
from shared.lifecycle.inputs import AnyCommand, Hold, Release, Stop

_LONGEST_REASON: Final = 500

Reason = Annotated[
    str,
    AfterValidator(printable("a reason", _LONGEST_REASON)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": _LONGEST_REASON}),
]

router = APIRouter(responses={200: {"model": JobView}})


class StopBody(BaseModel):
    """How to stop: `force` kills at once, `grace_seconds` lie between the polite signal and the kill."""

    model_config = ConfigDict(extra="forbid")

    force: StrictBool = False
    grace_seconds: StrictInt | None = Field(default=None, ge=0, le=86_400)


class HoldBody(BaseModel):
    """Why it is held."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason = "held by hand"


class ReleaseBody(BaseModel):
    """Nothing to say."""

    model_config = ConfigDict(extra="forbid")


@router.post("/jobs/{job}/stop")
async def stop(job: str, api: ApiPart, caller: CallerPart, body: StopBody | None = None) -> Response:
    """Stop it: a waiting job at once; a running one is asked to end, and its outputs so far are copied back."""
    asked = body or StopBody()
    command = Stop(actor=caller.user, at=api.clock.now(), force=asked.force, grace_seconds=asked.grace_seconds)
    return await _decide(api, caller, job, command)


@router.post("/jobs/{job}/hold")
async def hold(job: str, api: ApiPart, caller: CallerPart, body: HoldBody | None = None) -> Response:
    """Keep a waiting job back until it is released."""
    reason = (body or HoldBody()).reason
    command = Hold(actor=caller.user, at=api.clock.now(), reason=reason, by_admin=caller.is_admin)
    return await _decide(api, caller, job, command)


@router.post("/jobs/{job}/release")
async def release(job: str, api: ApiPart, caller: CallerPart, body: ReleaseBody | None = None) -> Response:
    """Let a held job go on."""
    return await _decide(api, caller, job, Release(actor=caller.user, at=api.clock.now(), by_admin=caller.is_admin))


async def _decide(api: Api, caller: Caller, job: str, command: AnyCommand) -> Response:
    """The job after the command. What is so already is no error; what is refused is, with the sentence why."""
    async with api.store.transaction() as tx:
        record = await tx.lock_one(caller.tenant, checked_id(job))
        if record is None:
            raise job_not_found(job)
        change, outcome = take_command(record, command, api.clock.now())
        if change is not None:
            await tx.apply([change])
    if outcome.what == "refused":
        raise Problem("conflict", f"{command.kind} is not possible: {outcome.why}", state=record.state)
    found = await api.job(caller, job)
    shown = found if change is None else Found(change.record, found.spec)
    return as_json((await views(api, caller, [shown]))[0])
