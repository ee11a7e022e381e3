"""What a job wrote to its standard output and error, from where it runs."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from services.api.context import Api, ApiPart, CallerPart, checked_id
from services.api.problems import Problem, job_not_found
from shared.contracts.queries import LogsAnswer, LogsAsked
from shared.lifecycle.states import TERMINAL

router = APIRouter()
PIECE_BYTES: Final = 262_144
_LARGEST: Final = 2**62
_PAUSE_SECONDS: Final = 0.2
_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@router.get("/jobs/{job}/logs", responses={200: {"content": {"text/plain": {}}}})
async def logs(
    job: str,
    api: ApiPart,
    caller: CallerPart,
    stream: Literal["stdout", "stderr"] = "stdout",
    offset: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=PIECE_BYTES)] = PIECE_BYTES,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="the current one, if left out")] = None,
    follow: Annotated[bool, Query(description="go on until the job has ended")] = False,
) -> Response:
    """The bytes from `offset` on; the headers say where the next piece begins and how long the log is now."""
    state = await api.reads.state(caller.tenant, checked_id(job))
    if state is None:
        raise job_not_found(job)
    if attempt is not None and attempt > state[1]:
        raise Problem("not-found", f"attempt: {attempt} was given, and the job is at attempt {state[1]}")
    asked = LogsAsked(
        tenant=caller.tenant, job=job, attempt=attempt or state[1], stream=stream, offset=offset, limit_bytes=limit
    )
    first = await api.asking.logs(asked)
    headers = {**_HEADERS, "Tidegate-Size": str(first.size_bytes)}
    if follow:
        return StreamingResponse(_following(api, asked, first, state[0]), media_type=_TEXT, headers=headers)
    headers["Tidegate-Next-Offset"] = str(first.next_offset)
    return Response(base64.b64decode(first.data), media_type=_TEXT, headers=headers)


async def _following(api: Api, asked: LogsAsked, answer: LogsAnswer, state: str) -> AsyncIterator[bytes]:
    """Everything until the job's end. A watcher that is away for a while is waited for: the reader sees a pause."""
    async with api.feed.tail(asked.tenant) as tail:
        while True:
            if data := base64.b64decode(answer.data):
                yield data
                asked = asked.model_copy(update={"offset": answer.next_offset, "limit_bytes": PIECE_BYTES})
            elif state in TERMINAL or api.feed.closing:
                return  # asked after the end was known, and nothing more was there
            else:
                await tail.changed(_PAUSE_SECONDS)
            state = (await api.reads.state(asked.tenant, asked.job) or (state, 0))[0]
            answer = await _patiently(api, asked)


async def _patiently(api: Api, asked: LogsAsked) -> LogsAnswer:
    while True:
        try:
            return await api.asking.logs(asked)
        except Problem:
            if api.feed.closing:
                return LogsAnswer(found=False, data="", next_offset=asked.offset, size_bytes=asked.offset)
            await asyncio.sleep(_PAUSE_SECONDS)
