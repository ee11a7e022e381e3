"""Asks `api` about jobs whose reservations are open since long, so that nothing stays booked for a job that let go.

Events reach the gatekeeper within a week of their sending; this finds what was lost all the same (with a stream, or
with a restored database). Only the job's own record permits a release: silence never does.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from services.gatekeeper import statements as sql
from services.gatekeeper.handlers import Gatekeeper
from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.clock import Clock
from shared.runtime.database import Database
from shared.runtime.errors import RpcUnavailable

AFTER: Final = timedelta(minutes=10)
_ASKED_AT_ONCE: Final = 100
_QUESTIONS: Final = 20  # per tick: 2,000 reservations a minute

Ask = Callable[[bytes], Awaitable[bytes]]


class Audit:
    """Goes round all open reservations, some at a time. Where it is lives in memory: a restart begins anew."""

    def __init__(self, db: Database, clock: Clock, gatekeeper: Gatekeeper, ask: Ask) -> None:
        self._db = db
        self._clock = clock
        self._gatekeeper = gatekeeper
        self._ask = ask
        self._last = ""

    async def audit(self) -> None:
        """Compare the next open reservations with their jobs' records; settle what differs."""
        for _ in range(_QUESTIONS):
            before = self._clock.now() - AFTER
            jobs = [row["job"] for row in await self._db.fetch(sql.OPEN_SINCE, self._last, before, _ASKED_AT_ONCE)]
            if jobs:
                try:
                    body = await self._ask(NewestAsked(jobs=tuple(jobs)).model_dump_json().encode())
                except RpcUnavailable:
                    return
                await self._settle(NewestAnswer.model_validate_json(body))
            self._last = jobs[-1] if len(jobs) == _ASKED_AT_ONCE else ""
            if not self._last:
                return

    async def _settle(self, answer: NewestAnswer) -> None:
        records = {job.id: job for job in (decode_event(body.encode()).job for body in answer.events)}
        if records:
            question = int(self._clock.now().timestamp())
            await self._gatekeeper.on_records(records, dict.fromkeys(records, question))
