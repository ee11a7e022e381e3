"""The events of a job and of a tenant: as a stream, or as a list."""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from services.api.context import ApiPart, CallerPart, checked_id, number
from services.api.problems import Problem
from services.api.streams import of_job, of_tenant
from shared.lifecycle.states import TERMINAL

router = APIRouter()
EVENT_STREAM: Final = "text/event-stream"
_LISTED: Final = 1000
_JOB_MARK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_LARGEST: Final = 2**62
_STREAM_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="the id of the last event you have")]


@router.get("/jobs/{job}/events", responses={200: {"content": {EVENT_STREAM: {}, "application/json": {}}}})
async def of_one_job(
    job: str,
    api: ApiPart,
    caller: CallerPart,
    accept: Annotated[str, Header()] = "application/json",
    last_event_id: LastEventId = None,
    after: Annotated[str | None, Query(description="the id of the last event you have, for the JSON list")] = None,
    follow: Annotated[str | None, Query(description="`forever`: do not end with the job")] = None,
) -> Response:
    """With `Accept: text/event-stream` a stream that ends with the job, else the list of up to 1,000 events."""
    state = await api.reads.state(caller.tenant, checked_id(job))
    if state is None:
        raise await api.no_job(caller, job)
    if follow not in (None, "forever"):
        raise Problem("invalid", f"follow: {follow[:40]!r} was given; it is `forever`, or left out")
    mark = _job_mark(last_event_id if last_event_id is not None else after)
    if EVENT_STREAM in accept:
        ended = state[0] in TERMINAL
        stream = of_job(api.feed, api.reads, caller.tenant, job, mark, ended=ended, for_ever=follow is not None)
        return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_STREAM_HEADERS)
    events = await api.reads.log(caller.tenant, job, mark, _LISTED + 1)
    shown = events[:_LISTED]
    more = f'"{shown[-1].epoch}-{shown[-1].seq}"' if len(events) > _LISTED else "null"
    items = b",".join(event.body for event in shown)
    return Response(b'{"items":[%b],"next_after":%b}' % (items, more.encode()), media_type="application/json")


@router.get("/events", responses={200: {"content": {EVENT_STREAM: {}}}})
async def of_the_tenant(api: ApiPart, caller: CallerPart, last_event_id: LastEventId = None) -> Response:
    """Every event of the tenant from now on, or after `Last-Event-ID` (0: from the first one)."""
    after = None
    if last_event_id is not None:
        after = number(last_event_id, "Last-Event-ID", default=0, most=_LARGEST)
        newest = await api.feed.position(caller.tenant)
        if after > newest:
            detail = f"Last-Event-ID: {after} was given, and the last event of tenant {caller.tenant} is {newest}"
            raise Problem("invalid", f"{detail}: send the id of an event that you had, or none to begin now")
    stream = of_tenant(api.feed, caller.tenant, after)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_STREAM_HEADERS)


def _job_mark(given: str | None) -> tuple[int, int]:
    if not given:
        return 0, 0
    match = _JOB_MARK.fullmatch(given)
    if match is None:
        raise Problem("invalid", f"Last-Event-ID: {given[:40]!r} was given; it is an event's id, such as 1-4")
    return int(match[1]), int(match[2])
