"""What is read without changing anything: jobs with their specs, pages, the log of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shared.lifecycle.record import JobRecord
from shared.runtime.database import Database

ONE: Final = """
SELECT record::text AS record, spec FROM jobs JOIN specs ON specs.tenant = jobs.tenant AND digest = spec_digest
WHERE id = $1 AND jobs.tenant = $2
"""

# A page, newest first; the filters are NULL where none is asked for.
PAGE: Final = """
WITH page AS (
    SELECT id, tenant, record, spec_digest FROM jobs
    WHERE tenant = $1 AND id < $2 {filters} ORDER BY id DESC LIMIT $3
)
SELECT record::text AS record, spec
FROM page JOIN specs ON specs.tenant = page.tenant AND digest = spec_digest ORDER BY id DESC
"""

EXISTS: Final = "SELECT record ->> 'state' AS state, (record ->> 'attempt')::int AS attempt FROM jobs \
WHERE id = $1 AND tenant = $2"

LOG: Final = """
SELECT epoch, seq, position, type, body FROM events
WHERE job = $1 AND tenant = $2 AND (epoch, seq) > ($3, $4) ORDER BY epoch, seq LIMIT $5
"""

# Everything that a replay needs.
INPUTS: Final = "SELECT body, inputs, at, epoch FROM events WHERE job = $1 ORDER BY epoch, seq"

SNAPSHOTS: Final = "SELECT digest FROM snapshots WHERE tenant = $1 AND digest = ANY ($2::text[])"


@dataclass(frozen=True, slots=True)
class Found:
    """A job with its whole spec."""

    record: JobRecord
    spec: dict[str, Any]


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
        self, tenant: str, *, states: Sequence[str], name: str | None, before: str | None, limit: int
    ) -> list[Found]:
        """Jobs older than the id `before`, newest first."""
        filters, arguments = "", list[object]([tenant, before or "k", limit])
        if states:
            arguments.append(list(states))
            filters += f" AND state = ANY (${len(arguments)}::text[])"
        if name is not None:
            arguments.append(name)
            filters += f" AND name = ${len(arguments)}"
        return [_found(row) for row in await self._database.fetch(PAGE.format(filters=filters), *arguments)]

    async def log(self, tenant: str, job: str, after: tuple[int, int], limit: int) -> list[Logged]:
        """The job's events after `(epoch, seq)`."""
        rows = await self._database.fetch(LOG, job, tenant, *after, limit)
        return [Logged(job, row["epoch"], row["seq"], row["position"], row["type"], row["body"]) for row in rows]

    async def inputs(self, job: str) -> list[tuple[bytes, list[dict[str, object]], datetime, int]]:
        """Event bodies, the inputs that caused them, their times and epochs, oldest first."""
        return [tuple(row) for row in await self._database.fetch(INPUTS, job)]

    async def known_snapshots(self, tenant: str, digests: Sequence[str]) -> set[str]:
        """Those of the digests that the tenant has stored."""
        return {row["digest"] for row in await self._database.fetch(SNAPSHOTS, tenant, list(digests))}


def _found(row: Any) -> Found:
    return Found(JobRecord.model_validate_json(row["record"]), row["spec"])
