"""The stager put together: settings, store, blobs, handlers, workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from services.stager.audit import Audit, Restored
from services.stager.blobs import Blobs
from services.stager.copying import Copying
from services.stager.copying import Limits as OutputLimits
from services.stager.deletion import Deletion, Deletions
from services.stager.domain import Stage
from services.stager.handlers import JobEvents
from services.stager.leases import Leases, source_of
from services.stager.listing import Limits
from services.stager.machine import ThisMachine
from services.stager.queries import Outputs
from services.stager.settings import StagerSettings
from services.stager.staging import Staging
from services.stager.store import Store
from services.stager.sweep import Sweep
from services.stager.underway import Underway
from services.stager.upstream import Upstream
from services.stager.work import Work
from services.stager.workers import Workers
from shared.contracts.queries import NewestAnswer, NewestAsked, SpecsAnswer, SpecsAsked
from shared.runtime.clock import Clock
from shared.runtime.lost_time import without_lost_time
from shared.runtime.service import Service
from shared.runtime.specs import Specs
from shared.runtime.standing import Standing

_SWEEP_SECONDS: Final = 2.0
_IN_STEP_SECONDS: Final = 0.5


class Stager(Service):
    """A service whose workers hand their rows back before the stores are closed."""

    workers: tuple[Workers, ...] = ()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Connected and working inside the block; at its end every row is let go at once."""
        async with super().lifespan():
            try:
                yield
            finally:
                await asyncio.gather(*(workers.stop() for workers in self.workers))


def create(settings: StagerSettings, *, clock: Clock | None = None) -> Service:
    """The service, ready to run."""
    service = Stager("stager", settings, clock=clock)
    root = str(settings.local_root)
    store = Store(service.db)

    def standing() -> Standing:
        return service.standing

    leases = Leases(
        service.db,
        service.clock,
        replica=settings.replica,
        lease_seconds=settings.staging_lease_seconds,
        epoch=lambda: service.standing.epoch,
    )
    blobs = Blobs(settings.blob_url)
    machine = ThisMachine(settings.job_path)

    async def ask(question: SpecsAsked) -> SpecsAnswer:
        answer = await service.call("api", "specs", question.model_dump_json().encode())
        return SpecsAnswer.model_validate_json(answer)

    async def ask_newest(question: NewestAsked) -> NewestAnswer:
        answer = await service.call("api", "newest", question.model_dump_json().encode())
        return NewestAnswer.model_validate_json(answer)

    specs = Specs(ask)
    snapshots = Limits(settings.snapshot_files_max, settings.snapshot_bytes_max)
    outputs = OutputLimits(settings.output_files_max, settings.output_bytes_max)
    size = settings.staging_workers
    copying = Copying(blobs, root, outputs)
    underway = Underway(root)
    work = Work(
        leases,
        specs,
        Staging(blobs, machine, root, snapshots),
        copying,
        underway,
        Upstream(ask_newest),
        service.log,
        tries=settings.staging_tries,
        threads=2 * size,
    )
    staging_in = Workers(leases, Stage.STAGE_IN, work.stage_in, size, service.log)
    copying_back = Workers(leases, Stage.COPY_BACK, work.copy_back, size, service.log)
    service.workers = (staging_in, copying_back)

    def wake() -> None:
        staging_in.ring()
        copying_back.ring()

    events = JobEvents(
        store,
        specs,
        machine,
        root,
        service.clock,
        source=source_of(settings.replica),
        standing=standing,
        may_stage=lambda: restored.may_stage(),
        wake=wake,
    )
    service.consume("stager")(without_lost_time(service, events.on_jobs))
    service.rpc("outputs")(Outputs(store, blobs).asked)

    audit = Audit(store, events, ask_newest, settings.staging_audit_seconds)
    restored = Restored(audit, standing)
    sweep = Sweep(underway, leases, copying, root, standing, service.log)
    service.every(_SWEEP_SECONDS)(sweep.once)
    window_seconds = settings.restore_window_seconds
    deletion = Deletion(
        Deletions(service.db), blobs, underway, root, standing, service.log, window_seconds=window_seconds
    )
    service.every(_SWEEP_SECONDS)(deletion.once)

    @service.on_start
    async def take_back() -> None:
        """What this replica held before it ended is nobody's: it, or another, begins again at once."""
        if count := await leases.take_back():
            service.log.info("staging of an earlier life is begun again", count=count)

    @service.every(0)
    async def stage_in() -> None:
        """Stage in as work comes."""
        if await restored.in_step():
            await staging_in.once()
        else:
            await asyncio.sleep(_IN_STEP_SECONDS)

    @service.every(0)
    async def copy_back() -> None:
        """Copy back as work comes."""
        await copying_back.once()

    @service.every(settings.staging_lease_seconds / 3)
    async def renew() -> None:
        """Hold on to the leases of what runs."""
        await staging_in.renew()
        await copying_back.renew()

    @service.every(settings.staging_audit_seconds / 10)
    async def long_staged() -> None:
        """Learn what became of attempts whose events may be lost."""
        await audit.once()

    return service
