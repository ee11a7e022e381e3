"""Sealing attempts: revoke, read the claims, end what is there, vote. And letting the backend's records go.

Everything here may be done twice; the vote is one guarded write. Records of an attempt are released only when its end
is in the job's record: before that the watcher may still have to read them.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, assert_never

from opentelemetry.metrics import Meter

from services.launcher.domain import Launch, State
from services.launcher.endings import AskToStop, Holder, KillNow, Sealable, Wait, asked, next_step, sealed, waiting
from services.launcher.store import Store
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk, KillKind, ReleaseAnswer
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

BATCH: Final = 200
_AT_ONCE: Final = 16
_CLAIM: Final = timedelta(seconds=15)
_KILL_SECONDS: Final = 5.0
_RELEASE_AGAIN: Final = timedelta(seconds=5)


class Ending:
    """Works on rows in `revoking`, and on sealed ones whose records are to be released."""

    def __init__(self, store: Store, backend: LocalClient, clock: Clock, log: Log, meter: Meter) -> None:
        self._store = store
        self._backend = backend
        self._clock = clock
        self._log = log
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._sealed = meter.create_counter("tidegate_attempts_sealed", description="Attempts that the launcher let go")

    async def once(self) -> float | None:
        """One look at a batch of what is to end; in how many seconds to look again, None where nothing is known of."""
        now = self._clock.now()
        rows = await self._store.claim_endings(BATCH, now + _CLAIM, now)
        if not rows:
            return None
        done = await asyncio.gather(*(self._look(row) for row in rows))
        written = await self._store.record_endings(done)
        self._sealed.add(sum(row.state is State.SEALED for row in written))
        if len(rows) == BATCH:
            return 0.0
        pauses = [(row.next_at - now).total_seconds() for row in written if row.state is State.REVOKING]
        return min(pauses, default=None)

    async def release(self) -> bool:
        """Let the records of a batch of sealed attempts go; whether there may be more."""
        now = self._clock.now()
        rows = await self._store.claim_releases(BATCH, now + _RELEASE_AGAIN, now)
        gone = await asyncio.gather(*(self._released(row.submission) for row in rows))
        await self._store.mark_released([row.key for row, done in zip(rows, gone, strict=True) if done])
        return len(rows) == BATCH

    async def _look(self, row: Launch) -> Launch:
        async with self._at_once:
            try:
                return await self._advance(row)
            except CouldNotAsk as error:
                self._log.warning("an attempt cannot be ended yet", submission=row.submission, why=str(error))
                return waiting(row, self._clock.now(), str(error))

    async def _advance(self, row: Launch) -> Launch:
        directory = self._backend.attempt_directory(row.tenant, row.job, row.attempt)
        await self._backend.revoke(directory)
        claims = await self._backend.claims(directory)
        names = dict.fromkeys(claim.submission or row.submission for claim in claims)
        holders = [Holder(name, await self._backend.adopt(name)) for name in names]
        now = self._clock.now()
        match next_step(row, holders, now):
            case Sealable(ran, gone):
                if not await self._swept(gone):
                    return waiting(row, now, "processes of it are left that would not end")
                told = row.witnessed or not ran
                let_go = told and all([await self._released(name) for name in names or (row.submission,)])
                return sealed(row, ran=ran, released=let_go, now=self._clock.now())
            case AskToStop(submissions, grace_seconds):
                for name in submissions:
                    await self._backend.stop(name, grace_seconds)
                return asked(row, grace_seconds, now)
            case KillNow(submissions):
                await self._swept(submissions)
                return waiting(row, self._clock.now(), "it did not end when it was asked to")
            case Wait():
                return waiting(row, now)
            case never:
                assert_never(never)

    async def _swept(self, submissions: Sequence[str]) -> bool:
        """Whether nothing of them is left; what is left is killed."""
        ends = [await self._backend.kill(name, _KILL_SECONDS) for name in submissions]
        return all(end.kind is not KillKind.UNCLEAR for end in ends)

    async def _released(self, submission: str) -> bool:
        try:
            return await self._backend.release(submission) is not ReleaseAnswer.LIVE
        except CouldNotAsk as error:
            self._log.warning("records cannot be released yet", submission=submission, why=str(error))
            return False
