"""Sealing attempts: revoke, read the claims, end what is there, vote. And letting the backend's records go.

Everything here may be done twice; the vote is one guarded write. Records of an attempt are released only when its end
is in the job's record: before that the watcher may still have to read them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, assert_never

from opentelemetry.metrics import Meter

from services.launcher.backend import Backend, Look, Target
from services.launcher.domain import Launch, State
from services.launcher.endings import (
    AskToStop,
    KillNow,
    Sealable,
    Step,
    Wait,
    asked,
    next_step,
    sealed,
    waiting,
)
from services.launcher.store import Store
from shared.backends.local.messages import CouldNotAsk, ReleaseAnswer
from shared.runtime import failpoints
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

BATCH: Final = 200
_CLAIM: Final = timedelta(seconds=15)
_RELEASE_AGAIN: Final = timedelta(seconds=5)


class Ending:
    """Works on one cluster's rows in `revoking`, and on sealed ones whose records are to be released."""

    def __init__(self, store: Store, backend: Backend, clock: Clock, log: Log, meter: Meter) -> None:
        self._store = store
        self._backend = backend
        self._clock = clock
        self._log = log
        self._sealed = meter.create_counter("tidegate_attempts_sealed", description="Attempts that the launcher let go")
        self._complained: str | None = None

    async def once(self) -> float | None:
        """One look at a batch of what is to end; in how many seconds to look again, None where nothing is known of."""
        now = self._clock.now()
        rows = await self._store.claim_endings(BATCH, now + _CLAIM, now, self._backend.cluster)
        if not rows:
            return None
        looks = await self._look(rows)
        self._complain(rows, looks)
        steps = [self._step(row, look) for row, look in zip(rows, looks, strict=True)]
        done = await asyncio.gather(*(self._take(row, step) for row, step in zip(rows, steps, strict=True)))
        written = await self._store.record_endings(await self._let_go(done, looks))
        self._sealed.add(sum(row.state is State.SEALED for row in written))
        if len(rows) == BATCH:
            return 0.0
        pauses = [(row.next_at - now).total_seconds() for row in written if row.state is State.REVOKING]
        return min(pauses, default=None)

    async def release(self) -> bool:
        """Let the records of a batch of sealed attempts go; whether there may be more."""
        now = self._clock.now()
        rows = await self._store.claim_releases(BATCH, now + _RELEASE_AGAIN, now, self._backend.cluster)
        gone = await self._released([_target(row) for row in rows])
        await self._store.mark_released([row.key for row in rows if row.submission in gone])
        return len(rows) == BATCH

    async def _look(self, rows: Sequence[Launch]) -> list[Look]:
        """Revoke every attempt, and only then see who holds a claim on it."""
        failpoints.reach("revoke.before")
        return await self._backend.revoke([_target(row) for row in rows])

    def _step(self, row: Launch, look: Look) -> Step | CouldNotAsk:
        if isinstance(look, CouldNotAsk):
            return look
        return next_step(row, look, self._clock.now())

    def _complain(self, rows: Sequence[Launch], looks: Sequence[Look]) -> None:
        """Once for as long as the reason stays the same: a backend may be away for hours."""
        held_up = [
            (row.submission, str(look)) for row, look in zip(rows, looks, strict=True) if isinstance(look, CouldNotAsk)
        ]
        why = held_up[0][1] if held_up else None
        if why is not None and why != self._complained:
            self._log.warning("attempts cannot be ended yet", count=len(held_up), first=held_up[0][0], why=why)
        self._complained = why

    async def _take(self, row: Launch, step: Step | CouldNotAsk) -> Launch:
        """Do what the step says, and give the row that follows from it."""
        now = self._clock.now()
        try:
            match step:
                case CouldNotAsk():
                    return waiting(row, now, str(step))
                case Sealable(ran, gone):
                    if not await self._swept(row, gone):
                        return waiting(row, now, "processes of it are left that would not end")
                    return sealed(row, ran=ran, now=self._clock.now())
                case AskToStop(submissions, grace_seconds, number, pausing):
                    failpoints.reach("kill.before")
                    for name in submissions:
                        await self._backend.stop(_target(row, name), grace_seconds, number, pausing=pausing)
                    failpoints.reach("kill.after")
                    return asked(row, grace_seconds, now)
                case KillNow(submissions):
                    failpoints.reach("kill.before")
                    await self._swept(row, submissions)
                    failpoints.reach("kill.after")
                    return waiting(row, self._clock.now(), "it did not end when it was asked to")
                case Wait():
                    return waiting(row, now)
                case never:
                    assert_never(never)
        except CouldNotAsk as error:
            return waiting(row, self._clock.now(), str(error))

    async def _let_go(self, rows: Sequence[Launch], looks: Sequence[Look]) -> list[Launch]:
        """Release the records of attempts that are sealed now, where nobody has to read them any more."""
        told = {
            row.key: [_target(row, holder.submission) for holder in look] or [_target(row)]
            for row, look in zip(rows, looks, strict=True)
            if row.state is State.SEALED and (row.witnessed or not row.ran) and not isinstance(look, CouldNotAsk)
        }
        gone = await self._released([target for targets in told.values() for target in targets])
        return [
            replace(row, released=row.key in told and all(target.submission in gone for target in told[row.key]))
            for row in rows
        ]

    async def _swept(self, row: Launch, submissions: Sequence[str]) -> bool:
        """Whether nothing of them is left; what is left is killed."""
        return all([await self._backend.kill(_target(row, name)) for name in submissions])

    async def _released(self, targets: Sequence[Target]) -> set[str]:
        """Those of which the backend shows nothing any more."""
        if not targets:
            return set()
        failpoints.reach("release.before")
        answers = await self._backend.release(targets)
        failpoints.reach("release.after")
        for answer in answers:
            if isinstance(answer, CouldNotAsk):
                self._log.warning("records cannot be released yet", why=str(answer))
        return {
            target.submission
            for target, answer in zip(targets, answers, strict=True)
            if not isinstance(answer, CouldNotAsk) and answer is not ReleaseAnswer.LIVE
        }


def _target(row: Launch, submission: str | None = None) -> Target:
    return Target(submission or row.submission, row.tenant, row.job, row.attempt)
