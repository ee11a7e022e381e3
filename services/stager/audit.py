"""Asks `api` about attempts that are open here: those that are staged since long, and all of them after a restore."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from services.stager.handlers import JobEvents
from services.stager.store import Store
from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.errors import RpcUnavailable
from shared.runtime.standing import Standing

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
        while (jobs := await self._store.long_staged(self._seconds, _AT_ONCE)) and await self._compare(jobs):
            pass

    async def everything(self) -> bool:
        """Ask about all that are open; False where nobody answered."""
        last = ""
        while jobs := await self._store.open_jobs(last, _AT_ONCE):
            if not await self._compare(jobs):
                return False
            last = jobs[-1]
        return True

    async def _compare(self, jobs: Sequence[str]) -> bool:
        try:
            answer = await self._ask(NewestAsked(jobs=tuple(jobs)))
        except RpcUnavailable:
            return False
        await self._events.on_records([decode_event(event.encode()).job for event in answer.events])
        return True


class Restored:
    """Keeps staging in from beginning after a restore, until this slice knows what the records know.

    Rows that were taken back in time say that attempts are to be staged which ran long since.
    """

    def __init__(self, audit: Audit, standing: Callable[[], Standing]) -> None:
        self._audit = audit
        self._standing = standing
        self._compared = False

    def may_stage(self) -> bool:
        """What `in_step` found last."""
        return self._compared or self._standing().epoch == 1

    async def in_step(self) -> bool:
        """Whether staging in may begin. A later start asks once more: the last one may have ended before it had."""
        if not self._compared:
            standing = self._standing()
            self._compared = self.may_stage() or (not standing.restoring and await self._audit.everything())
        return self._compared
