"""The stager's slice: set-based for batches of events, guarded by the lease for workers.

Whoever changes rows locks them first, in the order of their keys, so that handlers and workers never wait in a circle.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from services.stager.domain import Known, Stage
from services.stager.facts import Heading, outgoing
from shared.lifecycle.facts import AnyFact
from shared.runtime.clock import Clock
from shared.runtime.database import Database, Tx

_KNOWN: Final = "SELECT DISTINCT job FROM staging WHERE job = ANY ($1::text[])"
_LOCK: Final = """
SELECT job, attempt, stage, epoch, seq, facts, answers FROM staging
WHERE job = ANY ($1::text[]) ORDER BY job, attempt FOR UPDATE
"""
_NUMBERS: Final = "SELECT nextval('fact_versions') FROM generate_series(1, $1::integer)"
_INSERT: Final = """
INSERT INTO staging (job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, lease_epoch, facts)
SELECT job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, lease_epoch, facts::jsonb
FROM unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::text[], $8::boolean[],
            $9::text[], $10::integer[], $11::text[])
     AS given (job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, lease_epoch, facts)
ON CONFLICT (job, attempt) DO NOTHING RETURNING job
"""
# A changed stage ends the lease: what its worker publishes afterwards finds no row.
_UPDATE: Final = """
UPDATE staging SET
    epoch = given.epoch,
    seq = given.seq,
    stage = given.stage,
    succeeded = coalesce(given.succeeded, staging.succeeded),
    directory = coalesce(given.directory, staging.directory),
    facts = staging.facts || given.facts::jsonb,
    answers = staging.answers + given.asked::integer,
    owner = CASE WHEN given.stage = staging.stage THEN owner END,
    deadline = CASE WHEN given.stage = staging.stage THEN deadline END,
    tries = CASE WHEN given.stage = staging.stage THEN tries ELSE 0 END,
    due_at = CASE WHEN given.stage = staging.stage THEN due_at ELSE now() END
FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::text[], $6::boolean[], $7::text[],
            $8::text[], $9::boolean[])
     AS given (job, attempt, epoch, seq, stage, succeeded, directory, facts, asked)
WHERE staging.job = given.job AND staging.attempt = given.attempt
"""
_CLOSE: Final = """
UPDATE staging SET stage = 'over', owner = NULL, deadline = NULL
FROM unnest($1::text[], $2::integer[]) AS given (job, attempt)
WHERE staging.job = given.job AND staging.attempt = given.attempt AND stage NOT IN ('sealed', 'over')
"""
_DELETE: Final = "UPDATE staging SET deleted_at = coalesce(deleted_at, now()) WHERE job = ANY ($1::text[])"

_CLAIM: Final = """
WITH due AS (
    SELECT job, attempt FROM staging
    WHERE stage = $1 AND due_at <= now() AND (owner IS NULL OR deadline < now())
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE staging SET
    owner = $3, deadline = now() + make_interval(secs => $4), lease_epoch = lease_epoch + 1, tries = tries + 1
FROM due WHERE staging.job = due.job AND staging.attempt = due.attempt
RETURNING staging.job, staging.attempt, tenant, spec_digest, directory, succeeded, lease_epoch, tries
"""
_HELD: Final = """
FROM unnest($2::text[], $3::integer[], $4::integer[]) AS held (job, attempt, lease_epoch)
WHERE staging.job = held.job AND staging.attempt = held.attempt AND staging.lease_epoch = held.lease_epoch
  AND owner = $1
"""
_RENEW: Final = f"""
UPDATE staging SET deadline = now() + make_interval(secs => $5) {_HELD} RETURNING staging.job, staging.attempt
"""
_HAND_BACK: Final = f"""
UPDATE staging SET owner = NULL, deadline = NULL, due_at = now() + make_interval(secs => $5),
       tries = tries - $6::boolean::integer {_HELD}
"""
_TAKE_BACK: Final = "UPDATE staging SET owner = NULL, deadline = NULL WHERE owner = $1"
# Asked about once per `seconds`: the row's time is when it was staged, or last asked about.
_LONG_STAGED: Final = """
WITH old AS (
    SELECT job, attempt FROM staging WHERE stage = 'staged' AND due_at < now() - make_interval(secs => $1)
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE staging SET due_at = now() FROM old WHERE staging.job = old.job AND staging.attempt = old.attempt
RETURNING staging.job
"""
_NEXT_EPOCH: Final = """
UPDATE staging SET lease_epoch = lease_epoch + 1
WHERE job = $1 AND attempt = $2 AND owner = $3 AND lease_epoch = $4 RETURNING lease_epoch
"""
_LOCK_LEASED: Final = """
SELECT stage, owner, lease_epoch, directory, manifest FROM staging WHERE job = $1 AND attempt = $2 FOR UPDATE
"""
_PUBLISH: Final = """
UPDATE staging SET stage = $3, owner = NULL, deadline = NULL, tries = 0, due_at = now(),
       directory = coalesce($4, directory), manifest = coalesce($5, manifest), facts = facts || $6::text::jsonb
WHERE job = $1 AND attempt = $2
"""
_OUTPUTS: Final = """
SELECT manifest FROM staging WHERE job = $1 AND tenant = $2 AND manifest IS NOT NULL AND deleted_at IS NULL
ORDER BY attempt DESC LIMIT 1
"""

_EARLIER_OUTPUTS: Final = """
SELECT manifest FROM staging WHERE job = $1 AND attempt < $2 AND manifest IS NOT NULL ORDER BY attempt DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Row:
    """An attempt's row as a handler sees it."""

    known: Known
    facts: list[dict[str, Any]]
    answers: int


@dataclass(frozen=True, slots=True)
class Write:
    """What is to become of an attempt's row. `facts` are added to those told before; `asked`: they were told again."""

    job: str
    attempt: int
    tenant: str
    spec_digest: str
    epoch: int
    seq: int
    stage: Stage
    succeeded: bool | None = None
    directory: str | None = None
    lease_epoch: int = 0
    facts: tuple[AnyFact, ...] = ()
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """Work that this replica holds the lease of. `tries` counts this one."""

    stage: Stage
    job: str
    attempt: int
    tenant: str
    spec_digest: str
    lease_epoch: int
    tries: int
    directory: str | None
    succeeded: bool | None


class Store:
    """All statements of the service."""

    def __init__(self, database: Database, clock: Clock, *, replica: str, lease_seconds: float) -> None:
        self.database = database
        self.source = f"stager/{replica}"
        self._clock = clock
        self._replica = replica
        self._lease_seconds = lease_seconds

    async def known(self, jobs: Iterable[str]) -> set[str]:
        """Which of these jobs have a row: read without a lock, to save work."""
        return {row["job"] for row in await self.database.fetch(_KNOWN, list(jobs))}

    async def lock_jobs(self, tx: Tx, jobs: Sequence[str]) -> dict[str, dict[int, Row]]:
        """All rows of these jobs by job and attempt, locked in order."""
        rows: dict[str, dict[int, Row]] = {}
        for row in await tx.fetch(_LOCK, jobs):
            known = Known(row["attempt"], Stage(row["stage"]), row["epoch"], row["seq"])
            rows.setdefault(row["job"], {})[row["attempt"]] = Row(known, row["facts"], row["answers"])
        return rows

    async def numbers(self, tx: Tx, count: int) -> Iterator[int]:
        """So many versions of facts, higher than any before. Take them under the rows' locks."""
        return iter([row["nextval"] for row in await tx.fetch(_NUMBERS, count)])

    async def insert(self, tx: Tx, writes: Sequence[Write]) -> set[str]:
        """Make new rows; the jobs of those that were made (another replica may have been first)."""
        if not writes:
            return set()
        columns = [
            [getattr(write, name) for write in writes]
            for name in ("job", "attempt", "tenant", "spec_digest", "epoch", "seq", "stage", "succeeded", "directory")
        ]
        facts = [_json(write.facts) for write in writes]
        rows = await tx.fetch(_INSERT, *columns, [write.lease_epoch for write in writes], facts)
        return {row["job"] for row in rows}

    async def update(self, tx: Tx, writes: Sequence[Write]) -> None:
        """Change rows that are locked."""
        if not writes:
            return
        columns = [
            [getattr(write, name) for write in writes]
            for name in ("job", "attempt", "epoch", "seq", "stage", "succeeded", "directory")
        ]
        await tx.execute(_UPDATE, *columns, [_json(write.facts) for write in writes], [write.asked for write in writes])

    async def close(self, tx: Tx, attempts: Sequence[tuple[str, int]], deleted: Sequence[str]) -> None:
        """End open attempts without a word, and mark the jobs that were deleted."""
        if attempts:
            await tx.execute(_CLOSE, [job for job, _ in attempts], [attempt for _, attempt in attempts])
        if deleted:
            await tx.execute(_DELETE, deleted)

    async def claim(self, stage: Stage, limit: int) -> list[Claim]:
        """Take the lease of work that is due and that nobody holds, oldest first."""
        rows = await self.database.fetch(_CLAIM, stage, limit, self._replica, self._lease_seconds)
        return [Claim(stage=stage, **dict(row)) for row in rows]

    async def renew(self, claims: Sequence[Claim]) -> set[tuple[str, int]]:
        """Hold on to leases; the attempts of those that are still ours."""
        rows = await self.database.fetch(_RENEW, *self._held(claims), self._lease_seconds)
        return {(row["job"], row["attempt"]) for row in rows}

    async def hand_back(self, claims: Sequence[Claim], *, after_seconds: float, uncounted: bool = False) -> None:
        """Let anybody take this work after a while; `uncounted`: the try was not its fault."""
        await self.database.execute(_HAND_BACK, *self._held(claims), after_seconds, uncounted)

    async def take_back(self) -> int:
        """What this replica held before it ended is nobody's; how many there were."""
        return int((await self.database.execute(_TAKE_BACK, self._replica)).split()[-1])

    async def long_staged(self, seconds: float, limit: int) -> list[str]:
        """Jobs that are staged and were not heard of for so long; each is named once in that time."""
        return [row["job"] for row in await self.database.fetch(_LONG_STAGED, seconds, limit)]

    async def next_epoch(self, claim: Claim) -> int | None:
        """A higher lease epoch for work that we hold; None where we hold it no more."""
        epoch: int | None = await self.database.fetchval(
            _NEXT_EPOCH, claim.job, claim.attempt, self._replica, claim.lease_epoch
        )
        return epoch

    async def publish(
        self,
        claim: Claim,
        stage: Stage,
        tell: Callable[[Heading], Sequence[AnyFact]],
        *,
        directory: str | None = None,
        manifest: str | None = None,
    ) -> bool:
        """End the work and tell the facts, if the lease is still ours: the fence. True also where an earlier call did
        it and the answer was lost; False leaves everything as it is."""
        async with self.database.transaction() as tx:
            row = await tx.fetchrow(_LOCK_LEASED, claim.job, claim.attempt)
            if row is None or not self._is_ours(row, claim):
                return row is not None and (row["directory"], row["manifest"]) == (
                    directory or claim.directory,
                    manifest,
                )
            heading = Heading(
                claim.job,
                claim.tenant,
                claim.attempt,
                self._clock.now(),
                self.source,
                await self.numbers(tx, 2),
            )
            facts = tell(heading)
            await tx.execute(_PUBLISH, claim.job, claim.attempt, stage, directory, manifest, _json(facts))
            await tx.enqueue([outgoing(fact) for fact in facts])
            return True

    async def outputs(self, tenant: str, job: str) -> str | None:
        """The name of the newest published manifest."""
        name: str | None = await self.database.fetchval(_OUTPUTS, job, tenant)
        return name

    async def earlier_outputs(self, claim: Claim) -> str | None:
        """The name of the newest manifest of an attempt before this one."""
        name: str | None = await self.database.fetchval(_EARLIER_OUTPUTS, claim.job, claim.attempt)
        return name

    def _is_ours(self, row: asyncpg.Record, claim: Claim) -> bool:
        return (row["stage"], row["owner"], row["lease_epoch"]) == (claim.stage, self._replica, claim.lease_epoch)

    def _held(self, claims: Sequence[Claim]) -> tuple[object, ...]:
        return (
            self._replica,
            [claim.job for claim in claims],
            [claim.attempt for claim in claims],
            [claim.lease_epoch for claim in claims],
        )


def _json(facts: Sequence[AnyFact]) -> str:
    """Facts as a row keeps them: text, because asyncpg takes a list of lists for an array of two dimensions."""
    return f"[{','.join(fact.model_dump_json(exclude_none=True) for fact in facts)}]"
