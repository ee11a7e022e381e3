"""The stager's slice for batches of events: set-based, one transaction each.

Whoever changes rows locks them first, in the order of their keys, so that handlers and workers never wait in a circle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.stager.domain import Known, Stage
from shared.lifecycle.facts import AnyFact
from shared.runtime.database import Database, Tx

_KNOWN: Final = "SELECT DISTINCT job FROM staging WHERE job = ANY ($1::text[])"
_LOCK: Final = """
SELECT job, attempt, stage, epoch, seq, directory, facts, answers, deleted_at IS NOT NULL AS deleted FROM staging
WHERE job = ANY ($1::text[]) ORDER BY job, attempt FOR UPDATE
"""
_NUMBERS: Final = "SELECT nextval('fact_versions') FROM generate_series(1, $1::integer)"
_INSERT: Final = """
INSERT INTO staging
    (job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, manifest, after, lease_epoch, facts)
SELECT job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, manifest, after, lease_epoch,
       facts::jsonb
FROM unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::text[], $8::boolean[],
            $9::text[], $10::text[], $11::text[], $12::integer[], $13::text[])
     AS given (
         job, attempt, tenant, spec_digest, epoch, seq, stage, succeeded, directory, manifest, after, lease_epoch, facts
     )
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
    manifest = coalesce(given.manifest, staging.manifest),
    facts = staging.facts || given.facts::jsonb,
    answers = staging.answers + given.asked::integer,
    owner = CASE WHEN given.stage = staging.stage THEN owner END,
    deadline = CASE WHEN given.stage = staging.stage THEN deadline END,
    tries = CASE WHEN given.stage = staging.stage THEN tries ELSE 0 END,
    due_at = CASE WHEN given.stage = staging.stage THEN due_at ELSE now() END
FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::text[], $6::boolean[], $7::text[],
            $8::text[], $9::text[], $10::boolean[])
     AS given (job, attempt, epoch, seq, stage, succeeded, directory, manifest, facts, asked)
WHERE staging.job = given.job AND staging.attempt = given.attempt
"""
_CLOSE: Final = """
UPDATE staging SET stage = 'over', owner = NULL, deadline = NULL
FROM unnest($1::text[], $2::integer[]) AS given (job, attempt)
WHERE staging.job = given.job AND staging.attempt = given.attempt AND stage NOT IN ('sealed', 'over')
"""
_DELETE: Final = """
WITH rows AS (
    UPDATE staging SET deleted_at = coalesce(deleted_at, now()) WHERE job = ANY ($1::text[]) RETURNING job, tenant
)
INSERT INTO deletions (job, tenant) SELECT DISTINCT job, tenant FROM rows ON CONFLICT (job) DO NOTHING
"""

# Asked about once per `seconds`: the row's time is when it was staged, or last asked about.
_LONG_STAGED: Final = """
WITH old AS (
    SELECT job, attempt FROM staging WHERE stage = 'staged' AND due_at < now() - make_interval(secs => $1)
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE staging SET due_at = now() FROM old WHERE staging.job = old.job AND staging.attempt = old.attempt
RETURNING staging.job
"""
_OPEN: Final = """
SELECT DISTINCT job FROM staging WHERE stage IN ('stage_in', 'staged', 'copy_back') AND job > $1 ORDER BY job LIMIT $2
"""
_OUTPUTS: Final = """
SELECT manifest FROM staging WHERE job = $1 AND tenant = $2 AND manifest IS NOT NULL AND deleted_at IS NULL
ORDER BY attempt DESC LIMIT 1
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
    manifest: str | None = None
    after: str | None = None
    lease_epoch: int = 0
    facts: tuple[AnyFact, ...] = ()
    asked: bool = False


class Store:
    """What handlers and queries read and write."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def known(self, jobs: Iterable[str]) -> set[str]:
        """Which of these jobs have a row: read without a lock, to save work."""
        return {row["job"] for row in await self.database.fetch(_KNOWN, list(jobs))}

    async def lock_jobs(self, tx: Tx, jobs: Sequence[str]) -> dict[str, dict[int, Row]]:
        """All rows of these jobs by job and attempt, locked in order."""
        rows: dict[str, dict[int, Row]] = {}
        for row in await tx.fetch(_LOCK, jobs):
            known = Known(
                row["attempt"], Stage(row["stage"]), row["epoch"], row["seq"], row["directory"], row["deleted"]
            )
            rows.setdefault(row["job"], {})[row["attempt"]] = Row(known, row["facts"], row["answers"])
        return rows

    async def insert(self, tx: Tx, writes: Sequence[Write]) -> set[str]:
        """Make new rows; the jobs of those that were made (another replica may have been first)."""
        if not writes:
            return set()
        columns = [
            [getattr(write, name) for write in writes]
            for name in (
                "job", "attempt", "tenant", "spec_digest", "epoch", "seq", "stage", "succeeded", "directory",
                "manifest", "after",
            )
        ]  # fmt: skip
        facts = [told_as_json(write.facts) for write in writes]
        rows = await tx.fetch(_INSERT, *columns, [write.lease_epoch for write in writes], facts)
        return {row["job"] for row in rows}

    async def update(self, tx: Tx, writes: Sequence[Write]) -> None:
        """Change rows that are locked."""
        if not writes:
            return
        columns = [
            [getattr(write, name) for write in writes]
            for name in ("job", "attempt", "epoch", "seq", "stage", "succeeded", "directory", "manifest")
        ]
        await tx.execute(
            _UPDATE, *columns, [told_as_json(write.facts) for write in writes], [write.asked for write in writes]
        )

    async def close(self, tx: Tx, attempts: Sequence[tuple[str, int]], deleted: Sequence[str]) -> None:
        """End open attempts without a word, and mark the jobs that were deleted, of which all is to be removed."""
        if attempts:
            await tx.execute(_CLOSE, [job for job, _ in attempts], [attempt for _, attempt in attempts])
        if deleted:
            await tx.execute(_DELETE, deleted)

    async def long_staged(self, seconds: float, limit: int) -> list[str]:
        """Jobs that are staged and were not heard of for so long; each is named once in that time."""
        return [row["job"] for row in await self.database.fetch(_LONG_STAGED, seconds, limit)]

    async def open_jobs(self, after: str, limit: int) -> list[str]:
        """Jobs with an attempt that is open here, in the order of their ids."""
        return [row["job"] for row in await self.database.fetch(_OPEN, after, limit)]

    async def outputs(self, tenant: str, job: str) -> str | None:
        """The name of the newest published manifest."""
        name: str | None = await self.database.fetchval(_OUTPUTS, job, tenant)
        return name


async def fact_numbers(tx: Tx, count: int) -> Iterator[int]:
    """So many versions of facts, higher than any before. Take them under the rows' locks."""
    return iter([row["nextval"] for row in await tx.fetch(_NUMBERS, count)])


def told_as_json(facts: Sequence[AnyFact]) -> str:
    """Facts as a row keeps them: text, because asyncpg takes a list of lists for an array of two dimensions."""
    return f"[{','.join(fact.model_dump_json(exclude_none=True) for fact in facts)}]"
