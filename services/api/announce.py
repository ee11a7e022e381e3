"""Asks again: the newest event of a job that does not move is published once more, as a question to whoever owes an
answer. What a lost stream took away comes back so, in either direction: services answer with their latest fact.

Not asked: what a service could be late with for its load alone. The first time is after minutes, each later one after
twice as long; at most `AT_ONCE` jobs a round are asked about, by one replica; and nobody is asked who has messages
enough waiting already, or cannot be reached.
"""

import zlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from shared.lifecycle.duties import OWED_BY, duties
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock
from shared.runtime.database import Database
from shared.runtime.errors import BrokerUnavailable
from shared.runtime.leases import Lease

FIRST_AFTER: Final = timedelta(minutes=5)  # above the broker's duplicate window of 2 minutes, which would drop it
HELD_FIRST_AFTER: Final = timedelta(hours=1)  # nothing is overdue there: it is asked in case the line has lost it
ROUND_SECONDS: Final = 10.0
AT_ONCE: Final = 200
LAGS_FROM: Final = 100  # messages that a service under load has waiting at any moment
_LOOKED_AT: Final = 1000

# Jobs that go on, whose newest event is sent and old: the next ones by id. A gate is an answer once the gatekeeper told
# of one: without a version it is what the record itself shows.
IDLE: Final = """
SELECT jobs.id, jobs.record::text, event.at, event.sent_at
FROM jobs JOIN events AS event ON (event.job, event.epoch, event.seq) = (jobs.id, jobs.epoch, jobs.seq)
WHERE jobs.state IN ('QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING') AND jobs.id > $1
    AND event.sent_at < $2 AND (event.at < $3 OR NOT jobs.record ?& ARRAY['gate', 'gate_version'])
ORDER BY jobs.id LIMIT $4
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
    """Walks through the open jobs, a part per round; one replica does."""

    def __init__(self, database: Database, clock: Clock, lag: Callable[[str], Awaitable[int]], lease: Lease) -> None:
        """`lag` says how many messages of a consumer are still to be handled."""
        self._database = database
        self._clock = clock
        self._lag = lag
        self._lease = lease
        self._after = ""

    async def round(self) -> int:
        """Ask about those of the next open jobs for which an answer is overdue; how many they were."""
        if not self._lease.held:
            self._after = ""
            return 0
        try:
            return await self._round()
        except BrokerUnavailable:
            return 0  # who cannot hear is asked when the broker is back

    async def _round(self) -> int:
        now = self._clock.now()
        rows = await self._database.fetch(IDLE, self._after, now - FIRST_AFTER, now - HELD_FIRST_AFTER, _LOOKED_AT)
        due = [row for row in rows if is_due(row["id"], row["at"], row["sent_at"], now)]
        due = due[:AT_ONCE]
        whole = len(rows) < _LOOKED_AT and len(due) < AT_ONCE
        self._after = "" if whole else (due if len(due) == AT_ONCE else rows)[-1]["id"]
        return await self._ask(due)

    async def _ask(self, due: Sequence[Any]) -> int:
        records = [JobRecord.model_validate_json(row["record"]) for row in due]
        owing = {record.id: {OWED_BY[duty] for duty in duties(record)} for record in records}
        busy = {service for service in set().union(*owing.values()) if await self._lag(service) >= LAGS_FROM}
        owed = [record for record in records if owing[record.id] and not owing[record.id] & busy]
        if owed:
            async with self._database.transaction() as tx:
                await self._lease.check(tx)
                ids = [record.id for record in owed]
                await tx.execute(AGAIN, ids, [record.epoch for record in owed], [record.seq for record in owed])
                tx.wake_relay()
        return len(owed)
