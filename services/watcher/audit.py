"""Asks `api` about attempts whose end is owed since long, so that a lost event keeps nobody waiting for ever.

Only the job's own record permits anything: silence, or a job that `api` does not know, changes nothing.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from services.watcher.handlers import JobEvents
from services.watcher.store import Store
from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.clock import Clock

AFTER: Final = timedelta(minutes=10)
_ASKED_AT_ONCE: Final = 100

Ask = Callable[[NewestAsked], Awaitable[NewestAnswer]]


class Audit:
    """Goes round the open rows, a hundred a time. Where it is lives in memory: a restart begins anew."""

    def __init__(self, store: Store, events: JobEvents, ask: Ask, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._ask = ask
        self._clock = clock
        self._last = ""

    async def once(self) -> None:
        """Compare the next open rows with their jobs' records, and note where the record has gone on."""
        jobs = await self._store.open_since(self._last, self._clock.now() - AFTER, _ASKED_AT_ONCE)
        self._last = jobs[-1] if len(jobs) == _ASKED_AT_ONCE else ""
        if jobs:
            answer = await self._ask(NewestAsked(jobs=tuple(jobs)))
            await self._events.take([decode_event(body.encode()).job for body in answer.events], answer=False)
