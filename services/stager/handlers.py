"""One function per message: what job events make of the stager's rows."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from services.stager import domain, workdir
from services.stager.checks import NO_FILES, check, nothing
from services.stager.domain import OPEN, Stage, concerns, decide
from services.stager.facts import Heading, Result, again, outgoing
from services.stager.machine import Machine
from services.stager.marks import Mark
from services.stager.store import Row, Store, Write, fact_numbers
from shared.contracts.events import decode_event, newest_by_job
from shared.contracts.spec import JobSpec
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock
from shared.runtime.errors import RpcUnavailable
from shared.runtime.messages import Delivery
from shared.runtime.outbox import Outgoing
from shared.runtime.specs import Specs
from shared.runtime.standing import Standing

_FIRST_LEASE: Final = 1


@dataclass(frozen=True, slots=True)
class Plain:
    """A job without files that checked out; its empty directory is made."""

    directory: str
    nothing_to_copy: bool
    warnings: tuple[str, ...]


class JobEvents:
    """The handler of the consumer `stager`. Jobs without files are staged here; workers do all else."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        machine: Machine,
        root: str,
        clock: Clock,
        *,
        source: str,
        standing: Callable[[], Standing],
        may_stage: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        """While nothing may be staged, after a restore, jobs without files are left to the workers, too."""
        self._store = store
        self._specs = specs
        self._machine = machine
        self._root = root
        self._clock = clock
        self._source = source
        self._standing = standing
        self._may_stage = may_stage
        self._wake = wake

    async def on_jobs(self, deliveries: list[Delivery]) -> None:
        """Begin, end or answer the staging of a batch of jobs. Safe to redeliver: guarded by (epoch, seq)."""
        await self.on_records([decode_event(delivery.body).job for delivery in deliveries])

    async def on_records(self, told: Sequence[JobRecord]) -> None:
        """The same for records, however they came."""
        standing = self._standing()
        newest = newest_by_job(told)
        records = {job: record for job, record in newest.items() if concerns(record, standing.backup_at)}
        if not records:
            return
        plain = await self._stage_plain(records)
        async with self._store.database.transaction() as tx:
            left = set(records)
            while left:  # a second time only for jobs whose first row another replica has just made
                rows = await self._store.lock_jobs(tx, sorted(left))
                numbers = await fact_numbers(tx, 2 * len(left))
                batch = _Batch()
                for job in sorted(left):
                    record = records[job]
                    now = self._clock.now()
                    heading = Heading(job, record.tenant, record.attempt, now, self._source, numbers, standing.epoch)
                    batch.add(record, rows.get(job, {}), plain.get(job), heading)
                made = await self._store.insert(tx, batch.inserts)
                await self._store.update(tx, batch.updates)
                await self._store.close(tx, batch.closed, batch.deleted)
                left = {write.job for write in batch.inserts} - made
                self._remove_unused([record for job in batch.unstaged if (record := records[job]).id not in left])
                await tx.enqueue([message for message in batch.messages if message.key not in left])
        self._wake()

    async def _stage_plain(self, records: Mapping[str, JobRecord]) -> dict[str, Plain]:
        """Check and stage what needs no file, before any row is locked. What cannot be done here is left out."""
        wanted = {job: record for job, record in records.items() if Duty.STAGE_IN in duties(record)}
        if not wanted or not self._may_stage():
            return {}
        for job in await self._store.known(wanted):
            del wanted[job]
        try:
            specs = await self._specs.get((record.tenant, record.spec_digest) for record in wanted.values())
        except RpcUnavailable:
            return {}
        without_files = [
            (record, spec)
            for record in wanted.values()
            if (spec := specs.get((record.tenant, record.spec_digest))) is not None
            and is_plain(spec, record.attempt)
            and _step_before(record) is None
        ]
        return await asyncio.to_thread(partial(self._make_plain, without_files))

    def _make_plain(self, jobs: Sequence[tuple[JobRecord, JobSpec]]) -> dict[str, Plain]:
        made: dict[str, Plain] = {}
        for record, spec in jobs:
            checked = check(spec, NO_FILES, nothing, self._machine, near=False)
            where = self._plain(record)
            if not checked.findings and workdir.make_plain(*where):
                made[record.id] = Plain(workdir.relative(*where), not spec.outputs, checked.warnings)
        return made

    def _remove_unused(self, unstaged: Sequence[JobRecord]) -> None:
        """A killed stager may have made the directory of a job that is voted on now without ever being staged."""
        for record in unstaged:
            workdir.remove_plain(*self._plain(record))

    def _plain(self, record: JobRecord) -> tuple[str, str, str, int, Mark]:
        """Where an attempt without files runs. A restored stager makes no directory of the lost time anew."""
        mark = Mark(self._standing().epoch, _FIRST_LEASE)
        return self._root, record.tenant, record.id, record.attempt, mark


class _Batch:
    """What a batch of decisions writes and says."""

    def __init__(self) -> None:
        self.inserts: list[Write] = []
        self.updates: list[Write] = []
        self.closed: list[tuple[str, int]] = []
        self.deleted: list[str] = []
        self.messages: list[Outgoing] = []
        self.unstaged: list[str] = []
        """Jobs of which nothing was staged, nor will be."""

    def add(self, record: JobRecord, rows: Mapping[int, Row], plain: Plain | None, heading: Heading) -> None:
        """Decide about one record and note what follows."""
        known = {attempt: row.known for attempt, row in rows.items()}
        self.closed += [(record.id, old) for old, row in known.items() if old < record.attempt and row.stage in OPEN]
        write = partial(
            Write,
            record.id,
            record.attempt,
            record.tenant,
            record.spec_digest,
            record.epoch,
            record.seq,
            after=_step_before(record),
        )
        match decide(record, known):
            case domain.Drop():
                # Another replica may have voted, on news of a stop, while the directory was made for an older record.
                if _voted_unstaged(rows.get(record.attempt)):
                    self.unstaged.append(record.id)
            case domain.Note():
                self._put(rows, write(rows[record.attempt].known.stage))
            case domain.StageIn():
                self._put(rows, _begun(write, plain, heading))
            case domain.CopyBack(directory, succeeded):
                self._put(rows, write(Stage.COPY_BACK, directory=directory, succeeded=succeeded))
            case domain.ReturnToStaged():
                self._put(rows, write(Stage.STAGED))
            case domain.Adopt(stage, directory, manifest):
                self._put(rows, write(stage, directory=directory, manifest=manifest))
            case domain.Seal(staged):
                if not staged:
                    self.unstaged.append(record.id)
                vote = heading.sealed(staged=staged, result=Result("none"))
                self._put(rows, write(Stage.SEALED, facts=(vote,)))
            case domain.Answer():
                row = rows[record.attempt]
                self._put(rows, write(row.known.stage, asked=True))
                self.messages += again(row.facts, row.answers + 1)
            case domain.Close(deleted):
                self.closed += [(record.id, attempt) for attempt, row in known.items() if row.stage in OPEN]
                self.deleted += [record.id] if deleted else []
            case never:
                assert_never(never)

    def _put(self, rows: Mapping[int, Row], write: Write) -> None:
        (self.updates if write.attempt in rows else self.inserts).append(write)
        self.messages += [outgoing(fact) for fact in write.facts]


def _step_before(record: JobRecord) -> str | None:
    """The job of the pipeline's step before this one."""
    return None if record.pipeline is None else record.pipeline.after


def _voted_unstaged(row: Row | None) -> bool:
    """Whether the vote was given and nothing was staged before it."""
    return row is not None and any(fact["kind"] == "staging_sealed" and not fact["staged"] for fact in row.facts)


def is_plain(spec: JobSpec, attempt: int) -> bool:
    """Whether an attempt starts without any file: none submitted, and none that an earlier attempt left."""
    return spec.snapshot is None and not spec.inputs and (attempt == 1 or not spec.outputs)


def _begun(write: Callable[..., Write], plain: Plain | None, heading: Heading) -> Write:
    if plain is None:
        return write(Stage.STAGE_IN)
    facts = (
        heading.valid(plain.warnings),
        heading.staged(plain.directory, nothing_to_copy=plain.nothing_to_copy),
    )
    stage = Stage.SEALED if plain.nothing_to_copy else Stage.STAGED
    return write(stage, directory=plain.directory, lease_epoch=_FIRST_LEASE, facts=facts)
