"""What a job wrote to its standard output and error, from where it runs."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from services.api.context import Api, ApiPart, CallerPart, checked_id
from services.api.problems import Problem
from shared.contracts.queries import LogsAnswer, LogsAsked
from shared.lifecycle.states import TERMINAL, State

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
    follow: Annotated[bool, Query(description="go on until the job, or the attempt that is named, has ended")] = False,
) -> Response:
    """The bytes from `offset` on; the headers say where the next piece begins and how long the log is now."""
    state = await api.reads.state(caller.tenant, checked_id(job))
    if state is None:
        raise await api.no_job(caller, job)
    if attempt is not None and attempt > state[1]:
        raise Problem("not-found", f"attempt: {attempt} was given, and the job is at attempt {state[1]}")
    asked = LogsAsked(
        tenant=caller.tenant, job=job, attempt=attempt or state[1], stream=stream, offset=offset, limit_bytes=limit
    )
    first = await api.asking.logs(asked)
    headers = {**_HEADERS, "Tidegate-Size": str(first.size_bytes)}
    if follow:
        pieces = _following(api, asked, first, state, only=attempt is not None)
        return StreamingResponse(pieces, media_type=_TEXT, headers=headers)
    headers["Tidegate-Next-Offset"] = str(first.next_offset)
    return Response(base64.b64decode(first.data), media_type=_TEXT, headers=headers)


async def _following(
    api: Api, asked: LogsAsked, answer: LogsAnswer, known: tuple[str, int], *, only: bool
) -> AsyncIterator[bytes]:
    """Everything until the job's end, one attempt after the other; with `only` until the attempt's. A watcher that is
    away for a while is waited for: the reader sees a pause."""
    async with api.feed.tail(asked.tenant) as tail:
        while True:
            state, newest = known
            is_newest = newest <= asked.attempt
            if data := base64.b64decode(answer.data):
                yield data
                asked = asked.model_copy(update={"offset": answer.next_offset, "limit_bytes": PIECE_BYTES})
            elif api.feed.closing or (is_newest and state in TERMINAL) or (only and _is_over(state, is_newest)):
                return  # asked after the end was known, and nothing more was there
            elif not is_newest:
                asked = asked.model_copy(update={"attempt": asked.attempt + 1, "offset": 0})
            else:
                await tail.changed(_PAUSE_SECONDS)
            known = await api.reads.state(asked.tenant, asked.job) or known
            answer = await _patiently(api, asked)


def _is_over(state: str, is_newest: bool) -> bool:
    """Whether the attempt that is read is sealed, so that nothing more is written in it."""
    return not is_newest or state == State.PAUSED


async def _patiently(api: Api, asked: LogsAsked) -> LogsAnswer:
    while True:
        try:
            return await api.asking.logs(asked)
        except Problem:
            if api.feed.closing:
                return LogsAnswer(found=False, data="", next_offset=asked.offset, size_bytes=asked.offset)
            await asyncio.sleep(_PAUSE_SECONDS)
