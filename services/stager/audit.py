"""Asks `api` about attempts that are staged since long, so that a lost event leaves none open for ever."""

from collections.abc import Awaitable, Callable
from typing import Final

from services.stager.handlers import JobEvents
from services.stager.store import Store
from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.errors import RpcUnavailable

Ask = Callable[[NewestAsked], Awaitable[NewestAnswer]]
_AT_ONCE: Final = 100


class Audit:
    """One question at a time; silence, or a job that `api` does not know, changes nothing."""

    def __init__(self, store: Store, events: JobEvents, ask: Ask, seconds: float) -> None:
        self._store = store
        self._events = events
        self._ask = ask
        self._seconds = seconds

    async def once(self) -> None:
        """Ask about those that are due, and act upon their records as if the events had just come."""
        while jobs := await self._store.long_staged(self._seconds, _AT_ONCE):
            try:
                answer = await self._ask(NewestAsked(jobs=tuple(jobs)))
            except RpcUnavailable:
                return
            await self._events.on_records([decode_event(event.encode()).job for event in answer.events])
