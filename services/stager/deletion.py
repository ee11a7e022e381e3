"""What deleted jobs have left is removed: outputs and files at once, what fences their attempts after the restore
window, and their rows in the end."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from services.stager.blobs import Blobs, StoreError
from services.stager.removal import is_fence, remove_attempts
from services.stager.underway import Underway
from shared.backends.local import layout
from shared.backends.local.names import parse_submission_name
from shared.runtime.database import Database
from shared.runtime.logs import Log
from shared.runtime.standing import Standing

_JOBS_AT_ONCE: Final = 10
_ENTRIES_AT_ONCE: Final = 20_000
_LEASE_SECONDS: Final = 60.0
_BUSY_SECONDS: Final = 5.0
_TROUBLE_SECONDS: Final = 30.0

# Taken for a while: whoever is killed leaves them to be taken again.
_TAKE: Final = """
WITH due AS (
    SELECT job FROM deletions WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE deletions SET due_at = now() + make_interval(secs => $2) FROM due WHERE deletions.job = due.job
RETURNING deletions.job, tenant, cleared_at IS NOT NULL AS cleared
"""
# Who took too long says nothing of a job that another has cleared meanwhile: its restore window has begun.
_LATER: Final = """
UPDATE deletions SET due_at = now() + make_interval(secs => $3) WHERE job = $1 AND (cleared_at IS NOT NULL) = $2
"""
_CLEARED: Final = """
UPDATE deletions SET cleared_at = now(), due_at = greatest(now(), deleted_at + make_interval(secs => $2)) WHERE job = $1
"""
_LOCK_ROWS: Final = "SELECT FROM staging WHERE job = $1 ORDER BY attempt FOR UPDATE"
_FORGET: Final = """
WITH rows AS (DELETE FROM staging WHERE job = $1 AND deleted_at IS NOT NULL)
DELETE FROM deletions WHERE job = $1
"""


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted job of which something is left; `cleared`: only what fences its attempts."""

    job: str
    tenant: str
    cleared: bool


class Deletions:
    """The rows of deleted jobs that are not forgotten yet."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self) -> list[Deleted]:
        """Some that are due, which nobody else takes for a while."""
        return [Deleted(**dict(row)) for row in await self._database.fetch(_TAKE, _JOBS_AT_ONCE, _LEASE_SECONDS)]

    async def later(self, deleted: Deleted, seconds: float) -> None:
        """Due again after that, unless another has cleared it since it was taken."""
        await self._database.execute(_LATER, deleted.job, deleted.cleared, seconds)

    async def cleared(self, job: str, window_seconds: float) -> None:
        """Its files are gone; it is due again when it has been deleted for so long."""
        await self._database.execute(_CLEARED, job, window_seconds)

    async def forget(self, job: str) -> None:
        """Nothing is left of it: the rows go, too."""
        async with self._database.transaction() as tx:
            await tx.fetch(_LOCK_ROWS, job)
            await tx.execute(_FORGET, job)


class Deletion:
    """Goes through deleted jobs. Safe to repeat, to be killed in, and for several replicas."""

    def __init__(
        self,
        rows: Deletions,
        blobs: Blobs,
        underway: Underway,
        root: str,
        standing: Callable[[], Standing],
        log: Log,
        *,
        window_seconds: float,
    ) -> None:
        self._rows = rows
        self._blobs = blobs
        self._underway = underway
        self._root = root
        self._standing = standing
        self._log = log
        self._window_seconds = window_seconds

    async def once(self) -> None:
        """All that is due, piece by piece. Nothing of a job of which something is still under way: it waits."""
        while not self._standing().restoring and (taken := await self._rows.take()):
            busy = await asyncio.to_thread(self._busy, [deleted.job for deleted in taken])
            for deleted in taken:
                if deleted.job in busy:
                    await self._rows.later(deleted, _BUSY_SECONDS)
                else:
                    await self._piece(deleted)

    async def _piece(self, deleted: Deleted) -> None:
        try:
            everything = await asyncio.to_thread(partial(self._remove, deleted))
        except (StoreError, OSError) as error:
            self._log.warning("what a deleted job left stays for now", job=deleted.job, error=str(error))
            await self._rows.later(deleted, _TROUBLE_SECONDS)
            return
        if not everything:
            await self._rows.later(deleted, 0)
        elif deleted.cleared:
            await self._rows.forget(deleted.job)
        else:
            await self._rows.cleared(deleted.job, self._window_seconds)

    def _busy(self, jobs: Sequence[str]) -> set[str]:
        """Those that a stager works on still, or of which the backend has a submission that is not released."""
        names = (
            name for entry in os.listdir(f"{self._root}/{layout.OPEN}") if (name := _submission(entry)) is not None
        )
        launched = {parsed[1] for name in names if (parsed := parse_submission_name(name)) is not None}
        return set(jobs) & (launched | {trace.job for trace in self._underway.left()})

    def _remove(self, deleted: Deleted) -> bool:
        folder = os.path.dirname(layout.attempt_directory(self._root, deleted.tenant, deleted.job, 1))
        if deleted.cleared:
            return remove_attempts(folder, lambda name: False, _ENTRIES_AT_ONCE)
        outputs = self._blobs.remove_some(f"{deleted.tenant}/outputs/{deleted.job}", _ENTRIES_AT_ONCE)
        return outputs and remove_attempts(folder, is_fence, _ENTRIES_AT_ONCE)


def _submission(entry: str) -> str | None:
    split = layout.split_record_name(entry)
    return None if split is None else split[0]
