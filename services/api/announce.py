"""Asks again: the newest event of a job that does not move is published once more, as a question to whoever owes an
answer. What a lost stream took away comes back so, in either direction: services answer with their latest fact.

Not asked: what a service could be late with for its load alone. The first time is after minutes, each later one after
twice as long, and at most `AT_ONCE` jobs a round are asked about.
"""

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from shared.lifecycle.duties import duties
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock
from shared.runtime.database import Database

FIRST_AFTER: Final = timedelta(minutes=5)  # above the broker's duplicate window of 2 minutes, which would drop it
ROUND_SECONDS: Final = 10.0
AT_ONCE: Final = 200
_LOOKED_AT: Final = 1000

# Jobs that go on, whose newest event is sent and old: the next ones by id.
IDLE: Final = """
SELECT jobs.id, jobs.record::text, event.at, event.sent_at
FROM jobs JOIN events AS event ON (event.job, event.epoch, event.seq) = (jobs.id, jobs.epoch, jobs.seq)
WHERE jobs.state IN ('QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING') AND jobs.id > $1
    AND event.sent_at < $2 ORDER BY jobs.id LIMIT $3
"""

# Have the relay publish these again.
AGAIN: Final = """
UPDATE events SET sent_at = NULL
FROM unnest($1::text[], $2::int[], $3::int[]) AS again (job, epoch, seq)
WHERE (events.job, events.epoch, events.seq) = (again.job, again.epoch, again.seq)
"""


def is_due(job: str, at: datetime, sent_at: datetime, now: datetime) -> bool:
    """Whether to ask (again) about an event of the instant `at` that was last sent at `sent_at`. Spread by the job's
    id over a quarter of the time, so that what stopped together is not asked about together."""
    spread = 1 + zlib.crc32(job.encode()) % 256 / 1024
    return now - at >= max(FIRST_AFTER, 2 * (sent_at - at)) * spread


class Announcer:
    """Walks through the open jobs, a part per round."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._after = ""

    async def round(self) -> int:
        """Ask about those of the next open jobs for which an answer is overdue; how many they were."""
        now = self._clock.now()
        rows = await self._database.fetch(IDLE, self._after, now - FIRST_AFTER, _LOOKED_AT)
        due = [row for row in rows if is_due(row["id"], row["at"], row["sent_at"], now)]
        due = due[:AT_ONCE]
        whole = len(rows) < _LOOKED_AT and len(due) < AT_ONCE
        self._after = "" if whole else (due if len(due) == AT_ONCE else rows)[-1]["id"]
        return await self._ask(due)

    async def _ask(self, due: Sequence[Any]) -> int:
        records = [JobRecord.model_validate_json(row["record"]) for row in due]
        owed = [record for record in records if duties(record)]
        if owed:
            async with self._database.transaction() as tx:
                ids = [record.id for record in owed]
                await tx.execute(AGAIN, ids, [record.epoch for record in owed], [record.seq for record in owed])
                tx.wake_relay()
        return len(owed)
