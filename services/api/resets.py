"""Tells every open job again, as the event `reset`: after a restore, and where the broker's store has lost events,
nobody knows what others have heard.

That it is to be done, and how far it has come, is a row: whoever goes on after a kill goes on from there.
"""

from typing import Final

from services.api.domain import Change, reset_of
from services.api.store import JobStore
from shared.lifecycle.inputs import Reset
from shared.runtime.clock import Clock
from shared.runtime.database import Database
from shared.runtime.leases import Lease

PAGE_SECONDS: Final = 1.0
PAGE: Final = 500
"""Jobs per page: no faster than this, so that what they set off does not come all at once."""

# What changed after `due` was told by that.
ASK: Final = "INSERT INTO resets (due) VALUES (now()) ON CONFLICT (one) DO UPDATE SET due = excluded.due, after = ''"

PENDING: Final = "SELECT EXISTS (SELECT FROM resets)"
LOCK: Final = "SELECT FROM resets FOR UPDATE"

# The next open jobs; `backup_at` where the record itself was taken back.
NEXT: Final = """
SELECT jobs.id, CASE WHEN jobs.epoch < standing.epoch THEN standing.backup_at END AS backup_at
FROM jobs, resets, standing
WHERE jobs.id > resets.after AND jobs.state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED')
    AND (jobs.epoch < standing.epoch OR jobs.updated_at < resets.due)
ORDER BY jobs.id LIMIT $1
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

    async def page(self) -> int:
        """Tell the next ones, where there are any to tell and this replica is the one to do it; how many it told."""
        if not self._lease.held or not await self.pending():
            return 0
        async with self._store.transaction() as tx:
            await self._lease.check(tx.tx)
            await tx.tx.execute(LOCK)
            rows = await tx.tx.fetch(NEXT, PAGE)
            backup_at = {row["id"]: row["backup_at"] for row in rows}
            records = await tx.lock(backup_at)
            now = self._clock.now()
            changes: list[Change] = [
                reset_of(record, Reset(epoch=record.epoch, backup_at=backup_at[job]), now)
                for job, record in records.items()
            ]
            if len(rows) < PAGE:
                await tx.tx.execute(END)
            else:
                await tx.tx.execute(GO_ON, rows[-1]["id"])
            await tx.apply(changes)
            return len(changes)
