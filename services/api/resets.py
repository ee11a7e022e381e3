"""Tells every open job again, as the event `reset`: after a restore, and where the broker's store has lost events,
nobody knows what others have heard.

That it is to be done, and how far it has come, is a row: whoever goes on after a kill goes on from there.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from asyncpg import Record

from services.api.domain import Change, reset_of
from services.api.store import JobStore
from shared.lifecycle.inputs import Reset
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock
from shared.runtime.database import Database
from shared.runtime.leases import Lease

PAGE_SECONDS: Final = 1.0
PAGE: Final = 500
"""Jobs per page: no faster than this, so that what they set off does not come all at once."""

_LOOK_SECONDS: Final = 0.2

# What changed after `due` was told by that.
ASK: Final = "INSERT INTO resets (due) VALUES (now()) ON CONFLICT (one) DO UPDATE SET due = excluded.due, after = ''"

PENDING: Final = "SELECT EXISTS (SELECT FROM resets)"
LOCK: Final = "SELECT FROM resets FOR UPDATE"

# The next open jobs; `backup_at` where the record itself was taken back.
NEXT: Final = """
SELECT jobs.id, CASE WHEN jobs.epoch < standing.epoch THEN standing.backup_at END AS backup_at
FROM jobs, resets, standing
WHERE jobs.id > resets.after AND jobs.state IN ('QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING', 'PAUSED')
    AND (jobs.epoch < standing.epoch OR jobs.updated_at < resets.due)
ORDER BY jobs.id LIMIT $1
"""
# Those of these jobs, locked by now, whose record is of an epoch that a restore has ended.
BEHIND: Final = """
SELECT id, standing.backup_at FROM jobs, standing WHERE id = ANY ($1::text[]) AND jobs.epoch < standing.epoch
"""
GO_ON: Final = "UPDATE resets SET after = $1"
END: Final = "DELETE FROM resets"


class Resets:
    """Walks through the open jobs, a page at a time; one replica does."""

    def __init__(self, database: Database, store: JobStore, clock: Clock, lease: Lease) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._lease = lease

    async def ask(self) -> None:
        """Have every open job told again."""
        await self._database.execute(ASK)

    async def pending(self) -> bool:
        """Whether some are still to be told."""
        return bool(await self._database.fetchval(PENDING))

    async def over(self) -> None:
        """Return once none is."""
        while await self.pending():  # noqa: ASYNC110 # another replica may be at it, and it tells nobody
            await asyncio.sleep(_LOOK_SECONDS)

    async def page(self) -> int:
        """Tell the next ones, where there are any to tell and this replica is the one to do it; how many it told."""
        if not self._lease.held or not await self.pending():
            return 0
        async with self._store.transaction() as tx:
            await tx.tx.execute(LOCK)
            rows = await tx.tx.fetch(NEXT, PAGE)
            records = await tx.lock(row["id"] for row in rows)
            if len(rows) < PAGE:
                await tx.tx.execute(END)
            else:
                await tx.tx.execute(GO_ON, rows[-1]["id"])
            await tx.apply(self._changes(records, rows))
            await self._lease.check(tx.tx)  # last: a transaction that has checked may not idle for long
            return len(rows)

    async def catch_up(self, jobs: Sequence[str]) -> None:
        """Tell those of these jobs again, ended ones too, that have not been told in the epoch of now."""
        async with self._store.transaction() as tx:
            records = await tx.lock(jobs)
            await tx.apply(self._changes(records, await tx.tx.fetch(BEHIND, jobs)))

    def _changes(self, records: Mapping[str, JobRecord], rows: Iterable[Record]) -> list[Change]:
        now = self._clock.now()
        told = [(records[row["id"]], row["backup_at"]) for row in rows if row["id"] in records]
        return [reset_of(record, Reset(epoch=record.epoch, backup_at=at), now) for record, at in told]
