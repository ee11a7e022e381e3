"""The event log as the relay's source: what is logged and not yet acknowledged by the broker."""

from collections.abc import Sequence
from typing import Final

from shared.contracts.subjects import job_subject
from shared.runtime.database import Database
from shared.runtime.outbox import Outgoing, UnsentRow

FETCH: Final = """
SELECT id, job, epoch, seq, tenant, type, headers, body FROM events WHERE sent_at IS NULL ORDER BY id LIMIT $1
"""

# Losing a mark only sends an event twice, so it need not wait for the disk.
MARK: Final = """
WITH quick AS (SELECT set_config('synchronous_commit', 'off', true))
UPDATE events SET sent_at = now() FROM quick WHERE id = ANY ($1::bigint[]) AND sent_at IS NULL
"""

COUNT: Final = "SELECT count(*) FROM events WHERE sent_at IS NULL"


class EventLog:
    """Events in the order of their ids, which within a job is that of `(epoch, seq)`: the job's row is locked."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fetch_unsent(self, limit: int) -> list[UnsentRow]:
        """The oldest unsent events."""
        rows = await self._database.fetch(FETCH, limit)
        return [
            UnsentRow(
                row["id"],
                Outgoing(
                    job_subject(row["tenant"], row["type"]),
                    f"{row['job']}/{row['epoch']}/{row['seq']}",
                    row["job"],
                    row["body"],
                    row["headers"],
                ),
            )
            for row in rows
        ]

    async def mark_sent(self, ids: Sequence[int]) -> None:
        """Remember that the broker has these."""
        await self._database.execute(MARK, ids)

    async def count_unsent(self) -> int:
        """How many events the broker is not known to have."""
        return int(await self._database.fetchval(COUNT))

    async def purge(self) -> None:
        """Nothing: the log is kept, since records are replayed from it and streams are resumed in it."""
