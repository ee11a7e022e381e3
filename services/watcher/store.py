"""The watcher's slice: set-based and guarded. What is told is written in the transaction that enqueues it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from services.watcher.domain import Finding, Watch
from services.watcher.idle import Announced
from shared.contracts.facts import encode_fact
from shared.lifecycle.facts import FACT
from shared.runtime.database import Database, Tx
from shared.runtime.outbox import Outgoing

# Guarded: an older version of the record, and one of an attempt that a newer one has followed, change nothing.
_WATCH: Final = """
INSERT INTO watched
    (job, attempt, tenant, cluster, epoch, seq, submission, accepted_at, over, answers, idle_seconds, snoozed_until)
SELECT job, attempt, tenant, cluster, epoch, seq, submission, accepted_at, over, 0, idle_seconds, snoozed_until
FROM unnest($1::text[], $2::integer[], $3::text[], $4::integer[], $5::bigint[], $6::text[], $7::timestamptz[],
            $8::boolean[], $9::integer[], $10::timestamptz[], $11::text[])
     AS given (job, attempt, tenant, epoch, seq, submission, accepted_at, over, idle_seconds, snoozed_until, cluster)
WHERE NOT EXISTS (SELECT FROM watched AS newer WHERE newer.job = given.job AND newer.attempt > given.attempt)
ORDER BY job, attempt
ON CONFLICT (job, attempt) DO UPDATE
SET epoch = excluded.epoch, seq = excluded.seq, over = excluded.over, cluster = excluded.cluster,
    submission = coalesce(excluded.submission, watched.submission), accepted_at = excluded.accepted_at,
    idle_seconds = excluded.idle_seconds, snoozed_until = excluded.snoozed_until
WHERE (watched.epoch, watched.seq) < (excluded.epoch, excluded.seq)
RETURNING job, attempt
"""
# A newer attempt ends everything older.
_OVERTAKE: Final = """
UPDATE watched SET over = true FROM unnest($1::text[], $2::integer[]) AS newer (job, attempt)
WHERE watched.job = newer.job AND watched.attempt < newer.attempt AND NOT over
"""
# A question is a version of the record that was seen before; the rows come back whose answer is to be told.
_ASKED: Final = """
UPDATE watched SET answers = answers + 1
FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[]) AS asked (job, attempt, epoch, seq)
WHERE (watched.job, watched.attempt, watched.epoch, watched.seq) = (asked.job, asked.attempt, asked.epoch, asked.seq)
RETURNING watched.job, watched.attempt
"""
# An end says more than a loss, a loss more than a start: one answer per attempt. Idleness is no progress.
_ANSWERS: Final = """
SELECT DISTINCT ON (job, attempt) job, attempt, kind, n, at, fact, sightings.epoch, answers, watched.cluster
FROM sightings JOIN watched USING (job, attempt) JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt)
     USING (job, attempt)
WHERE kind IN ('seen_running', 'exited', 'lost')
ORDER BY job, attempt, sightings.epoch DESC, n DESC
"""
# Told once per change and epoch: a row comes back only where the fact is new, has changed, or is told anew. The end of
# what was given up stays: that it was cancelled for it is no other end. No estimate takes the place of what is known.
_TELL: Final = """
INSERT INTO sightings AS known (submission, kind, job, attempt, n, at, fact, epoch)
SELECT submission, kind, job, attempt, nextval('fact_versions'), $6, fact, $7
FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::jsonb[])
     AS given (submission, kind, job, attempt, fact)
ORDER BY submission, kind
ON CONFLICT (submission, kind) DO UPDATE
SET fact = excluded.fact, at = excluded.at, n = nextval('fact_versions'), epoch = excluded.epoch
WHERE known.epoch < excluded.epoch
   OR (known.fact <> excluded.fact
       AND NOT (known.fact ? 'given_up' AND excluded.fact ->> 'started_at' IS NULL)
       AND NOT (known.fact @> '{"estimated": false}' AND excluded.fact @> '{"estimated": true}'))
RETURNING job, attempt, kind, n, at, fact, epoch
"""
# A loss takes back where it was seen: whoever is seen again after it is told anew, with a higher version.
_TAKE_BACK: Final = """
DELETE FROM sightings USING unnest($1::text[], $2::integer[]) AS gone (job, attempt)
WHERE sightings.job = gone.job AND sightings.attempt = gone.attempt AND kind IN ('seen_pending', 'seen_running')
"""
# Whose end is not known: an end or a loss counts only while the attempt was not seen in the queue or running since.
_EXPECTED: Final = """
SELECT job, attempt, tenant, submission, accepted_at, last_seen_at, absent_ms
FROM watched WHERE cluster = $1 AND NOT over AND NOT EXISTS (
    SELECT FROM sightings AS ended
    WHERE ended.job = watched.job AND ended.attempt = watched.attempt AND kind IN ('exited', 'lost') AND NOT EXISTS (
        SELECT FROM sightings AS later
        WHERE later.job = ended.job AND later.attempt = ended.attempt AND later.n > ended.n
            AND later.kind IN ('seen_pending', 'seen_running')
    )
)
"""
# Workstations that may be suspended for being idle, with what was told of that last.
_RESTING: Final = """
SELECT watched.job, watched.attempt, watched.tenant, watched.submission, idle_seconds, snoozed_until,
    told.fact ->> 'idle_since' AS since, told.fact ->> 'suspends_at' AS suspends_at
FROM watched LEFT JOIN sightings AS told ON told.submission = watched.submission AND told.kind = 'seen_idle'
WHERE NOT over AND idle_seconds IS NOT NULL AND watched.submission IS NOT NULL AND NOT EXISTS (
    SELECT FROM sightings AS last WHERE last.submission = watched.submission AND last.kind IN ('exited', 'lost')
)
"""
_SUBMISSION: Final = """
SELECT submission FROM watched WHERE job = $1 AND attempt = $2 AND tenant = $3 AND NOT over
"""
# Of who was seen and who was not. Rows are locked in the order of their keys; what is locked is left for the next time.
_REMEMBER: Final = """
WITH held AS (
    SELECT job, attempt, seen_at, counted_ms
    FROM watched JOIN unnest($1::text[], $2::integer[], $3::timestamptz[], $4::bigint[])
         AS given (job, attempt, seen_at, counted_ms) USING (job, attempt)
    WHERE NOT over ORDER BY job, attempt FOR UPDATE OF watched SKIP LOCKED
)
UPDATE watched SET last_seen_at = greatest(watched.last_seen_at, held.seen_at), absent_ms = held.counted_ms
FROM held WHERE watched.job = held.job AND watched.attempt = held.attempt
"""
_OPEN_SINCE: Final = """
SELECT DISTINCT job FROM watched WHERE NOT over AND job > $1 AND accepted_at < $2 ORDER BY job LIMIT $3
"""

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """An attempt that the backend took and whose end is not known."""

    job: str
    attempt: int
    tenant: str
    submission: str | None
    accepted_at: datetime
    last_seen_at: datetime | None
    absent_ms: int

    @property
    def key(self) -> Key:
        """One per job and attempt."""
        return (self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class Resting:
    """A workstation that may be suspended for being idle, and what was announced of that."""

    job: str
    attempt: int
    tenant: str
    submission: str
    idle_seconds: int
    snoozed_until: datetime | None
    announced: Announced | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Resting":
        """From the columns of `_RESTING`."""
        fields = dict(row)
        since, suspends_at = fields.pop("since"), fields.pop("suspends_at")
        announced = None
        if since is not None and suspends_at is not None:
            announced = Announced(datetime.fromisoformat(since), datetime.fromisoformat(suspends_at))
        return cls(announced=announced, **fields)


class Term(Protocol):
    """The time for which one replica observes a cluster for all: what it tells is told only within it."""

    @property
    def cluster(self) -> str:
        """Where it looks."""

    @property
    def epoch(self) -> int:
        """The one in which facts are told."""

    async def check(self, tx: Tx) -> None:
        """Raise `LeaseLost` where another replica observes by now; else none does before the transaction ends."""


class Store:
    """What is watched, and what was told."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def write(self, watches: Sequence[Watch], now: datetime) -> set[Key]:
        """Begin to watch, or note what newer records say; the attempts for which that was new."""
        rows = await self.database.fetch(
            _WATCH,
            [watch.job for watch in watches],
            [watch.attempt for watch in watches],
            [watch.tenant for watch in watches],
            [watch.epoch for watch in watches],
            [watch.seq for watch in watches],
            [watch.submission for watch in watches],
            [watch.accepted_at or now for watch in watches],
            [not watch.owed for watch in watches],
            [watch.idle_seconds for watch in watches],
            [watch.snoozed_until for watch in watches],
            [watch.cluster for watch in watches],
        )
        return {(row["job"], row["attempt"]) for row in rows}

    async def overtake(self, watches: Sequence[Watch]) -> None:
        """A newer attempt ends the watch over everything older."""
        await self.database.execute(_OVERTAKE, [watch.job for watch in watches], [watch.attempt for watch in watches])

    async def answer(self, watches: Sequence[Watch]) -> None:
        """Tell the newest fact of attempts whose record was seen before again, under new message ids."""
        async with self.database.transaction() as tx:
            asked = await tx.fetch(
                _ASKED,
                [watch.job for watch in watches],
                [watch.attempt for watch in watches],
                [watch.epoch for watch in watches],
                [watch.seq for watch in watches],
            )
            if asked:
                keys = ([row["job"] for row in asked], [row["attempt"] for row in asked])
                rows = await tx.fetch(_ANSWERS, *keys)
                await tx.enqueue([_outgoing(row, row["cluster"], answer=row["answers"]) for row in rows])

    async def tell(self, term: Term, found: Sequence[Finding], at: datetime) -> int:
        """Report what is new or has changed; how many facts that were."""
        if not found:
            return 0
        async with self.database.transaction() as tx:
            return await self._tell(tx, term, found, at)

    async def lose(self, term: Term, found: Sequence[Finding], at: datetime) -> int:
        """Report losses; a start that was told before counts as not told."""
        async with self.database.transaction() as tx:
            count = await self._tell(tx, term, found, at)
            await tx.execute(_TAKE_BACK, [finding.job for finding in found], [finding.attempt for finding in found])
        return count

    async def expected(self, cluster: str) -> list[Expected]:
        """Every attempt on a cluster whose end is owed and was not told."""
        return [Expected(**dict(row)) for row in await self.database.fetch(_EXPECTED, cluster)]

    async def resting(self) -> list[Resting]:
        """Every workstation that may be suspended for being idle, and is not known to have ended."""
        return [Resting.of_row(row) for row in await self.database.fetch(_RESTING)]

    async def submission_of(self, tenant: str, job: str, attempt: int) -> str | None:
        """By what name the backend knows an attempt whose end is owed; None where the tenant has none such."""
        found: str | None = await self.database.fetchval(_SUBMISSION, job, attempt, tenant)
        return found

    async def remember(self, term: Term, last_seen: Mapping[Key, datetime], absent: Mapping[Key, timedelta]) -> None:
        """Keep when attempts were last seen, or how long they are absent, so that whoever observes next knows it."""
        keys = sorted({*last_seen, *absent})
        if not keys:
            return
        counted = [round(absent.get(key, timedelta(0)) / timedelta(milliseconds=1)) for key in keys]
        async with self.database.transaction() as tx:
            await term.check(tx)
            await tx.execute(
                _REMEMBER,
                [job for job, _ in keys],
                [attempt for _, attempt in keys],
                [last_seen.get(key) for key in keys],
                counted,
            )

    async def open_since(self, after: str, before: datetime, limit: int) -> list[str]:
        """Jobs whose end is owed since before `before`: the next ones after the job `after`."""
        return [row["job"] for row in await self.database.fetch(_OPEN_SINCE, after, before, limit)]

    async def _tell(self, tx: Tx, term: Term, found: Sequence[Finding], at: datetime) -> int:
        await term.check(tx)
        rows = await tx.fetch(
            _TELL,
            [finding.submission for finding in found],
            [finding.kind for finding in found],
            [finding.job for finding in found],
            [finding.attempt for finding in found],
            [dict(finding.fact) for finding in found],
            at,
            term.epoch,
        )
        await tx.enqueue([_outgoing(row, term.cluster) for row in sorted(rows, key=lambda row: int(row["n"]))])
        return len(rows)


def _outgoing(row: Mapping[str, Any], cluster: str, *, answer: int | None = None) -> Outgoing:
    head = {
        "kind": row["kind"],
        "job": row["job"],
        "attempt": row["attempt"],
        "version": {"epoch": row["epoch"], "n": row["n"]},
        "at": row["at"],
        "source": f"watcher/{cluster}",
    }
    wire = encode_fact("watcher", FACT.validate_python(row["fact"] | head), answer=answer)
    return Outgoing(wire.subject, wire.msg_id, wire.key, wire.body)
