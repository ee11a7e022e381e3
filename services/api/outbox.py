"""The event log as the relay's source: what is logged and not yet acknowledged by the broker."""

from collections.abc import Sequence
from typing import Final

from shared.contracts.subjects import job_subject
from shared.runtime.database import Database
from shared.runtime.outbox import Outgoing, UnsentRow

FETCH: Final = """
SELECT id, job, epoch, seq, tenant, type, headers, body FROM events
WHERE sent_at IS NULL AND job <> ALL ($2::text[]) ORDER BY id LIMIT $1
"""


class EventLog:
    """Events in the order of their ids, which within a job is that of `(epoch, seq)`: the job's row is locked."""

    table = "events"
    subject = "'jobs.v1.' || tenant || '.' || type"

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fetch_unsent(self, limit: int, without: Sequence[str]) -> list[UnsentRow]:
        """The oldest unsent events."""
        rows = await self._database.fetch(FETCH, limit, without)
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

    async def purge(self) -> None:
        """Nothing: the log is kept, since records are replayed from it and streams are resumed in it."""
