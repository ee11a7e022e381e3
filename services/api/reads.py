"""What is read without changing anything: jobs with their specs, pages, the log of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.api.permitted import NOTHING_AROUND, Around
from services.api.stored import SNAPSHOTS
from shared.lifecycle.record import JobRecord
from shared.runtime.database import Database

# What is true around the job `job`, whose spec is `spec`: columns for `Around.of_row`.
SNAPSHOT: Final = "spec ->> 'snapshot'"
STORED: Final = """(spec ->> 'snapshot' IS NULL OR EXISTS (
        SELECT FROM snapshots WHERE snapshots.tenant = job.tenant AND snapshots.digest = spec ->> 'snapshot'
    ))"""
SPEC: Final = "JOIN specs ON specs.tenant = job.tenant AND specs.digest = job.spec_digest"
_AROUND: Final = f"""
    {SNAPSHOT} AS snapshot, {STORED} AS stored,
    EXISTS (
        SELECT FROM jobs AS step
        WHERE step.pipeline = job.pipeline AND step.state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED')
    ) AS moves,
    (
        SELECT step.record -> 'pipeline' ->> 'step' FROM jobs AS step
        WHERE step.pipeline = job.pipeline AND step.id > job.id AND step.state <> 'SUCCEEDED'
        ORDER BY step.id DESC LIMIT 1
    ) AS needed_by,
    (SELECT gone FROM pipelines WHERE pipelines.id = job.pipeline) AS gone
"""

ONE: Final = f"""
SELECT record::text AS record, spec, {_AROUND} FROM jobs AS job {SPEC} WHERE job.id = $1 AND job.tenant = $2
"""
AROUND: Final = f"SELECT job.id, {_AROUND} FROM jobs AS job {SPEC} WHERE job.id = ANY ($1::text[])"
DELETED_AT: Final = "SELECT deleted_at FROM tombstones WHERE job = $1 AND tenant = $2"

# A page, newest first; the filters are NULL where none is asked for.
PAGE: Final = """
WITH job AS (
    SELECT id, tenant, record, spec_digest, pipeline FROM jobs
    WHERE tenant = $1 AND id < $2 {filters} ORDER BY id DESC LIMIT $3
)
SELECT record::text AS record, spec, {around} FROM job {spec} ORDER BY id DESC
"""

EXISTS: Final = "SELECT record ->> 'state' AS state, (record ->> 'attempt')::int AS attempt FROM jobs \
WHERE id = $1 AND tenant = $2"

LOG: Final = """
SELECT epoch, seq, position, type, body FROM events
WHERE job = $1 AND tenant = $2 AND (epoch, seq) > ($3, $4) ORDER BY epoch, seq LIMIT $5
"""

# Everything that a replay needs.
INPUTS: Final = "SELECT body, inputs, at, epoch FROM events WHERE job = $1 ORDER BY epoch, seq"


@dataclass(frozen=True, slots=True)
class Found:
    """A job with its whole spec, and what is true around it."""

    record: JobRecord
    spec: dict[str, Any]
    around: Around = NOTHING_AROUND


@dataclass(frozen=True, slots=True)
class Logged:
    """An event as the log has it; `body` is a JobEvent's JSON."""

    job: str
    epoch: int
    seq: int
    position: int
    type: str
    body: bytes


class Reads:
    """Queries of one tenant's jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def job(self, tenant: str, job: str) -> Found | None:
        """The tenant's job, or None."""
        row = await self._database.fetchrow(ONE, job, tenant)
        return None if row is None else _found(row)

    async def state(self, tenant: str, job: str) -> tuple[str, int] | None:
        """The state and the attempt of the tenant's job, or None."""
        row = await self._database.fetchrow(EXISTS, job, tenant)
        return None if row is None else (row["state"], row["attempt"])

    async def page(
        self,
        tenant: str,
        *,
        states: Sequence[str],
        name: str | None,
        before: str | None,
        limit: int,
        kind: str | None = None,
    ) -> list[Found]:
        """Jobs older than the id `before`, newest first."""
        filters, arguments = "", list[object]([tenant, before or "k", limit])
        if states:
            arguments.append(list(states))
            filters += f" AND state = ANY (${len(arguments)}::text[])"
        if name is not None:
            arguments.append(name)
            filters += f" AND name = ${len(arguments)}"
        if kind is not None:
            filters += f" AND kind = '{kind}'"  # in the text, for the index that is of one kind only
        query = PAGE.format(filters=filters, around=_AROUND, spec=SPEC)
        return [_found(row) for row in await self._database.fetch(query, *arguments)]

    async def log(self, tenant: str, job: str, after: tuple[int, int], limit: int) -> list[Logged]:
        """The job's events after `(epoch, seq)`."""
        rows = await self._database.fetch(LOG, job, tenant, *after, limit)
        return [Logged(job, row["epoch"], row["seq"], row["position"], row["type"], row["body"]) for row in rows]

    async def inputs(self, job: str) -> list[tuple[bytes, list[dict[str, object]], datetime, int]]:
        """Event bodies, the inputs that caused them, their times and epochs, oldest first."""
        return [tuple(row) for row in await self._database.fetch(INPUTS, job)]

    async def deleted_at(self, tenant: str, id_: str) -> datetime | None:
        """When the tenant's job or pipeline was deleted; None where it was not."""
        at: datetime | None = await self._database.fetchval(DELETED_AT, id_, tenant)
        return at

    async def known_snapshots(self, tenant: str, digests: Sequence[str]) -> set[str]:
        """Those of the digests that the tenant has stored."""
        return {row["digest"] for row in await self._database.fetch(SNAPSHOTS, tenant, list(digests))}


def _found(row: Any) -> Found:
    return Found(JobRecord.model_validate_json(row["record"]), row["spec"], Around.of_row(row))
