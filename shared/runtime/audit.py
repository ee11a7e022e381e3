"""Asks `api` about rows that are open since long, so that a lost event leaves nothing running and nobody waiting.

Only the job's own record permits anything: silence, or a job that `api` does not know, changes nothing.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock

AFTER: Final = timedelta(minutes=10)
_ASKED_AT_ONCE: Final = 100

Ask = Callable[[NewestAsked], Awaitable[NewestAnswer]]
OpenSince = Callable[[str, datetime, int], Awaitable[list[str]]]
"""Jobs with a row that is open and began before an instant: so many, the next ones after a job's id."""


class Audit:
    """Goes round the open rows, a hundred a time. Where it is lives in memory: a restart begins anew."""

    def __init__(
        self, open_since: OpenSince, take: Callable[[list[JobRecord]], Awaitable[None]], ask: Ask, clock: Clock
    ) -> None:
        """`take` acts on records, and answers none that was seen before."""
        self._open_since = open_since
        self._take = take
        self._ask = ask
        self._clock = clock
        self._last = ""

    async def once(self) -> None:
        """Compare the next open rows with their jobs' records, and act where the record has gone on."""
        jobs = await self._open_since(self._last, self._clock.now() - AFTER, _ASKED_AT_ONCE)
        self._last = jobs[-1] if len(jobs) == _ASKED_AT_ONCE else ""
        if jobs:
            answer = await self._ask(NewestAsked(jobs=tuple(jobs)))
            await self._take([decode_event(body.encode()).job for body in answer.events])
