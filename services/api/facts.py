"""Applies facts to records: a batch is one transaction with a fixed number of statements, whatever its size."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from services.api.domain import Change, Reported, by_job, read_fact, take_facts
from services.api.store import Changes, JobStore
from shared.contracts.subjects import fact_subject
from shared.lifecycle.outcome import Outcome
from shared.runtime.clock import Clock
from shared.runtime.service import Service

ORPHANS_KEPT: Final = 10_000
_SWEPT: Final = 500

# Facts whose job has no row and no tombstone: the newest of each kind is kept.
KEEP_ORPHANS: Final = """
INSERT INTO orphans AS kept (job, fact, tenant, epoch, n, subject, body)
SELECT DISTINCT ON (job, fact) job, fact, tenant, epoch, n, subject, body
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::text[], $7::bytea[])
    AS new (job, fact, tenant, epoch, n, subject, body)
WHERE NOT EXISTS (SELECT FROM tombstones WHERE tombstones.job = new.job)
ORDER BY job, fact, epoch DESC, n DESC
ON CONFLICT (job, fact) DO UPDATE
SET epoch = excluded.epoch, n = excluded.n, body = excluded.body, at = now()
WHERE (kept.epoch, kept.n) < (excluded.epoch, excluded.n)
"""

# No more than the bound: the oldest go.
BOUND_ORPHANS: Final = """
DELETE FROM orphans WHERE (job, fact) IN (SELECT job, fact FROM orphans ORDER BY at DESC OFFSET $1)
"""

# Orphans whose job has a row or a tombstone by now.
TAKE_ORPHANS: Final = """
DELETE FROM orphans WHERE (job, fact) IN (
    SELECT job, fact FROM orphans
    WHERE EXISTS (SELECT FROM jobs WHERE jobs.id = orphans.job)
        OR EXISTS (SELECT FROM tombstones WHERE tombstones.job = orphans.job)
    ORDER BY job, fact LIMIT $1 FOR UPDATE SKIP LOCKED
) RETURNING subject, body, tenant, (SELECT jobs.tenant FROM jobs WHERE jobs.id = orphans.job) AS owner
"""


class Facts:
    """Makes facts into the next versions of records. Safe to redeliver: a fact known already changes nothing."""

    def __init__(self, service: Service, store: JobStore) -> None:
        self._store = store
        self._clock: Clock = service.clock
        self._log = service.log
        self._outcomes = service.metrics.create_counter(
            "tidegate_facts", description="Facts taken in, by kind and by what became of them"
        )

    async def take(self, reported: Sequence[Reported]) -> None:
        """Apply them; those of unknown jobs are kept as orphans."""
        async with self._store.transaction() as tx:
            outcomes = await self._apply(tx, reported)
        self._count(outcomes)

    async def sweep(self) -> None:
        """Apply the orphans whose row has appeared."""
        async with self._store.transaction() as tx:
            rows = await tx.tx.fetch(TAKE_ORPHANS, _SWEPT)
            theirs = [read_fact(row["subject"], row["body"]) for row in rows if row["tenant"] == row["owner"]]
            outcomes = await self._apply(tx, theirs) if theirs else []
        self._count(outcomes)

    async def _apply(self, tx: Changes, reported: Sequence[Reported]) -> list[tuple[str, Outcome]]:
        grouped = by_job(reported)
        records = await tx.lock(grouped)
        now: datetime = self._clock.now()
        changes: list[Change] = []
        seen: list[tuple[str, Outcome]] = []
        for job, record in records.items():
            change, outcomes = take_facts(record, grouped[job], now)
            seen += zip((one.fact.kind for one in grouped[job]), outcomes, strict=True)
            if change is not None:
                changes.append(change)
        orphans = [one for job, facts in grouped.items() if job not in records for one in facts]
        if orphans:
            await self._keep(tx, orphans)
        await tx.apply(changes)
        return seen

    async def _keep(self, tx: Changes, orphans: Sequence[Reported]) -> None:
        facts = [one.fact for one in orphans]
        kept = await tx.tx.execute(
            KEEP_ORPHANS,
            [fact.job for fact in facts],
            [one.key for one in orphans],
            [fact.tenant for fact in facts],
            [fact.version.epoch for fact in facts],
            [fact.version.n for fact in facts],
            [fact_subject(one.service, one.fact.kind) for one in orphans],
            [one.json.encode() for one in orphans],
        )
        if kept == "INSERT 0 0":
            return  # of deleted jobs, or known already
        await tx.tx.execute(BOUND_ORPHANS, ORPHANS_KEPT)
        self._log.warning("facts of unknown jobs", count=len(orphans), first=facts[0].job)

    def _count(self, seen: Iterable[tuple[str, Outcome]]) -> None:
        for (kind, what), count in Counter((kind, outcome.what) for kind, outcome in seen).items():
            self._outcomes.add(count, {"kind": kind, "outcome": what})
