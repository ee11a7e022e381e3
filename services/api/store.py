"""The job record and its event log in PostgreSQL: locked reads, guarded set-based writes, one place per statement.

Locks are taken in one order everywhere: job rows by id, then tenants by name. The tenant's row gives the positions of
its events as the last step before the commit, so that positions have no gap and commit in their order.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg
import orjson

from services.api.domain import Change
from services.api.permitted import Around
from services.api.pipelines import INSERT_PIPELINE, PIPELINE_GONE, STEP_GONE, LockedSteps, NewPipeline
from services.api.pipelines_views import gone_step
from services.api.reads import AROUND
from services.api.stored import SNAPSHOTS, keep_what_is_stored, release
from shared.contracts.events import dump, encode_event
from shared.lifecycle.record import JobRecord
from shared.runtime.database import Database, Tx
from shared.runtime.errors import DatabaseUnavailable, Retryable
from shared.runtime.telemetry import with_trace

# Lock rows in the order that every transaction keeps to; the epoch is that of what follows.
LOCK: Final = """
SELECT id, pipeline, record::text AS record, standing.epoch FROM jobs, standing
WHERE {which} ORDER BY id FOR UPDATE OF jobs
"""

# These jobs; of a pipeline all its steps, for the end of one is also told to others.
WITH_STEPS: Final = """
id = ANY (ARRAY(
    SELECT unnest($1::text[])
    UNION
    SELECT sibling.id FROM jobs AS step JOIN jobs AS sibling ON sibling.pipeline = step.pipeline
    WHERE step.id = ANY ($1::text[])
))
"""
LOCK_JOBS: Final = LOCK.format(which=WITH_STEPS)
LOCK_ONE: Final = LOCK.format(which=f"{WITH_STEPS} AND tenant = $2")
LOCK_PIPELINE: Final = LOCK.format(which="pipeline = $1 AND tenant = $2")

# The next versions; guarded by the version before, though the lock makes a stale one impossible, and by the epoch.
UPDATE: Final = """
UPDATE jobs
SET state = next.state, epoch = next.epoch, seq = next.seq, record = next.record::jsonb, updated_at = next.at
FROM unnest($1::text[], $2::text[], $3::int[], $4::int[], $5::text[], $6::timestamptz[])
    AS next (id, state, epoch, seq, record, at)
WHERE jobs.id = next.id AND jobs.epoch <= next.epoch AND jobs.seq = next.seq - 1
    AND next.epoch = (SELECT epoch FROM standing)
"""

# New jobs with their specs, each digest once; the digests in order, so that two transactions with the same new ones
# do not wait for each other in turn. None of an epoch that a restore has ended.
INSERT: Final = """
WITH spec AS (
    INSERT INTO specs (tenant, digest, spec)
    SELECT $1, digest, spec::jsonb FROM unnest($2::text[], $3::text[]) AS new (digest, spec) ORDER BY digest
    ON CONFLICT DO NOTHING
)
INSERT INTO jobs (id, tenant, state, name, spec_digest, epoch, seq, record, submitted_at, updated_at, pipeline, kind)
SELECT id, $1, state, name, spec_digest, new.epoch, seq, record::jsonb, at, at, $12, $13
FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::int[], $10::text[], $11::timestamptz[])
    AS new (id, state, name, spec_digest, epoch, seq, record, at)
WHERE new.epoch = (SELECT epoch FROM standing)
"""

# The row goes and leaves its id; guarded as an update is.
FORGET: Final = """
WITH gone AS (
    DELETE FROM jobs WHERE id = $1 AND epoch <= $2 AND seq = $3 - 1 AND $2 = (SELECT epoch FROM standing)
    RETURNING id, tenant
)
INSERT INTO tombstones (job, tenant, deleted_at) SELECT id, tenant, $4 FROM gone
"""

# Several tenants in the order that every transaction keeps to.
LOCK_TENANTS: Final = "SELECT FROM tenants WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE"

# The log, which is the outbox; ids rise in the order of the rows. From here to the commit the tenants' rows are locked.
APPEND: Final = """
WITH grown AS (
    UPDATE tenants SET position = position + more.events FROM unnest($1::text[], $2::int[]) AS more (name, events)
    WHERE tenants.name = more.name RETURNING tenants.name, tenants.position - more.events AS position
)
INSERT INTO events (job, epoch, seq, tenant, position, type, at, headers, body, inputs)
SELECT job, epoch, seq, tenant, grown.position + nth, type, at, headers, body, inputs::jsonb
FROM unnest($3::text[], $4::int[], $5::int[], $6::text[], $7::int[], $8::text[], $9::timestamptz[], $10::jsonb[],
            $11::bytea[], $12::text[])
    WITH ORDINALITY AS new (job, epoch, seq, tenant, nth, type, at, headers, body, inputs, place)
JOIN grown ON grown.name = new.tenant
ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A change as it is written: the record's JSON, and the event's headers and body for the log."""

    change: Change
    stored: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, change: Change) -> "Entry":
        """Encode a change."""
        dumped = dump(change.record)
        stored = orjson.dumps(dumped).decode()
        wire = encode_event(change.record, change.event, change.at, before=change.before, dumped=dumped)
        return cls(change, stored, dict(with_trace(wire.headers)), wire.body)


class Changes:
    """One open transaction on the job record."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.tenants: set[str] = set()
        """Those whose log grew."""
        self._steps = LockedSteps(_in_this_epoch)

    async def lock(self, ids: Iterable[str]) -> dict[str, JobRecord]:
        """The records of these jobs in the epoch of their next versions, theirs alone until the commit; unknown ids are
        left out."""
        wanted = set(ids)
        rows = self._steps.noted(await self.tx.fetch(LOCK_JOBS, list(wanted)))
        return {row["id"]: _in_this_epoch(row) for row in rows if row["id"] in wanted}

    async def lock_one(self, tenant: str, job: str) -> JobRecord | None:
        """The tenant's job in the epoch of its next version, or None."""
        rows = self._steps.noted(await self.tx.fetch(LOCK_ONE, [job], tenant))
        return next((_in_this_epoch(row) for row in rows if row["id"] == job), None)

    async def lock_pipeline(self, tenant: str, pipeline: str) -> list[JobRecord]:
        """The same for all steps of a pipeline, in their order; none where the tenant has no such pipeline."""
        return [_in_this_epoch(row) for row in self._steps.noted(await self.tx.fetch(LOCK_PIPELINE, pipeline, tenant))]

    async def kept_snapshots(self, tenant: str, digests: Sequence[str]) -> set[str]:
        """Those of the digests that the tenant has stored, kept to the commit, as are all its specs."""
        await keep_what_is_stored(self.tx, tenant)
        return {row["digest"] for row in await self.tx.fetch(SNAPSHOTS, tenant, digests)} if digests else set()

    async def around(self, records: Sequence[JobRecord], *, keep: bool) -> dict[str, Around]:
        """What is true around locked jobs of one tenant; with `keep` what they name stays so to the commit."""
        if keep and records:
            await keep_what_is_stored(self.tx, records[0].tenant)
        rows = await self.tx.fetch(AROUND, [record.id for record in records])
        return {row["id"]: Around.of_row(row) for row in rows}

    async def apply(self, given: Sequence[Change]) -> None:
        """Write the next versions and log them, with what the end of a step means for the steps after it."""
        if not given:
            return
        changes = self._steps.with_what_follows(given)
        entries = [Entry.of(change) for change in changes]
        records = [change.record for change in changes]
        tag = await self.tx.execute(
            UPDATE,
            [record.id for record in records],
            [record.state for record in records],
            [record.epoch for record in records],
            [record.seq for record in records],
            [entry.stored for entry in entries],
            [change.at for change in changes],
        )
        if tag != f"UPDATE {len(changes)}":
            raise Retryable(f"{len(changes)} records were to be updated, and {tag.split()[-1]} were: read them again")
        await self._append(entries)

    async def delete(self, change: Change) -> str | None:
        """Forget a locked job, and what only it has named; the name of the blob that is to be removed after the commit,
        none where there is none. A tombstone stays, and the log."""
        record = change.record
        tag = await self.tx.execute(FORGET, record.id, record.epoch, record.seq, change.at)
        if tag != "INSERT 0 1":
            raise Retryable(f"{record.id} was to be deleted, and is not what it was: read it again")
        if record.pipeline is not None:
            await self.tx.execute(STEP_GONE, record.pipeline.id, [gone_step(record, change.at)])
            await self.tx.execute(PIPELINE_GONE, record.pipeline.id, change.at)
        key = await release(self.tx, record.tenant, record.spec_digest)
        await self._append([Entry.of(change)])
        return key

    async def create(
        self, tenant: str, entries: Sequence[Entry], specs: Mapping[str, str], pipeline: NewPipeline | None = None
    ) -> None:
        """Insert new jobs of a tenant, with the specs by digest that they name, and log them; with `pipeline` they are
        its steps."""
        records = [entry.change.record for entry in entries]
        if pipeline is not None:
            await self.tx.execute(INSERT_PIPELINE, *pipeline.columns(tenant))
        tag = await self.tx.execute(
            INSERT,
            tenant,
            list(specs),
            list(specs.values()),
            [record.id for record in records],
            [record.state for record in records],
            [record.name for record in records],
            [record.spec_digest for record in records],
            [record.epoch for record in records],
            [record.seq for record in records],
            [entry.stored for entry in entries],
            [record.submitted_at for record in records],
            None if pipeline is None else pipeline.id,
            records[0].kind,
        )
        if tag != f"INSERT 0 {len(entries)}":
            raise DatabaseUnavailable("the database was restored under this process, which has to be started again")
        await self._append(entries)

    async def _append(self, entries: Sequence[Entry]) -> None:
        """The last statement of a transaction."""
        counts: dict[str, int] = {}
        nth: list[int] = []
        records = [entry.change.record for entry in entries]
        for record in records:
            counts[record.tenant] = counts.get(record.tenant, 0) + 1
            nth.append(counts[record.tenant])
        if len(counts) > 1:
            await self.tx.execute(LOCK_TENANTS, list(counts))
        tag = await self.tx.execute(
            APPEND,
            list(counts),
            list(counts.values()),
            [record.id for record in records],
            [record.epoch for record in records],
            [record.seq for record in records],
            [record.tenant for record in records],
            nth,
            [entry.change.event for entry in entries],
            [entry.change.at for entry in entries],
            [entry.headers for entry in entries],
            [entry.body for entry in entries],
            [entry.change.inputs for entry in entries],
        )
        if tag != f"INSERT 0 {len(entries)}":
            raise LookupError(
                f"{len(entries)} events were to be logged: one of the tenants {', '.join(counts)} is gone"
            )
        self.tenants.update(counts)
        self.tx.wake_relay()


def _in_this_epoch(row: asyncpg.Record) -> JobRecord:
    record = JobRecord.model_validate_json(row["record"])
    return record if record.epoch == row["epoch"] else record.model_copy(update={"epoch": row["epoch"]})


class JobStore:
    """Opens transactions on the job record and says, after each commit, whose log grew."""

    def __init__(self, database: Database, grown: Callable[[Iterable[str]], None]) -> None:
        self._database = database
        self._grown = grown

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Changes]:
        """Commits when the block ends; then the relay and the streams of this process are woken."""
        async with self._database.transaction() as tx:
            changes = Changes(tx)
            yield changes
        if changes.tenants:
            self._grown(changes.tenants)
