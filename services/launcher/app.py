"""The launcher put together: settings, store, backend, handlers, loops."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from services.launcher.backend import Backend
from services.launcher.bell import Bell
from services.launcher.ending import Ending
from services.launcher.handlers import JobEvents
from services.launcher.launching import BATCH, Launching
from services.launcher.local import LocalBackend
from services.launcher.settings import LauncherSettings
from services.launcher.slurm.backend import SlurmBackend
from services.launcher.store import Store
from services.launcher.sweep import Sweep
from shared.backends.local.client import LocalClient
from shared.backends.slurm.configured import client_of, clusters_of
from shared.contracts.queries import NewestAnswer, NewestAsked, SpecsAnswer, SpecsAsked
from shared.runtime.audit import Audit
from shared.runtime.clock import Clock
from shared.runtime.lost_time import without_lost_time
from shared.runtime.service import Service
from shared.runtime.specs import Specs

_IDLE_SECONDS: Final = 0.5
_BATCHES_AT_ONCE: Final = 2
"""While the backend is asked about one batch of launches, the answers for another are recorded."""
_LEASES_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 2.0
_AUDIT_SECONDS: Final = 30.0
_PURGE_SECONDS: Final = 60.0
_PURGED_AT_ONCE: Final = 2000
_TORN_AFTER: Final = timedelta(hours=1)
_STRANDED_SECONDS: Final = 30.0


class _Pace(NamedTuple):
    """How a kind of cluster is worked with: so long a launch there is leased, so many are leased at once, so often it
    is looked for what is sealed and runs."""

    lease_seconds: float
    batch: int
    sweep_seconds: float


_SLURM_LEASE_SECONDS: Final = 180.0
"""More than a controller that hangs can keep a batch of submissions: one squeue, one sacct, one sbatch."""
_SLURM_SWEEP_SECONDS: Final = 10.0
_SLURM_ROUNDS: Final = 8
"""A batch is so many times what may be submitted at once."""


def create(settings: LauncherSettings, *, clock: Clock | None = None) -> Service:
    """The service, ready to run."""
    service = Service("launcher", settings, clock=clock)
    store = Store(service.db, replica=settings.replica, epoch=lambda: service.standing.epoch)
    client = LocalClient(settings.local_root)
    bells: list[tuple[list[Bell], Bell]] = []

    async def ask(question: SpecsAsked) -> SpecsAnswer:
        answer = await service.call("api", "specs", question.model_dump_json().encode())
        return SpecsAnswer.model_validate_json(answer)

    specs = Specs(ask)

    def ring_launchers() -> None:
        for launchers, _ in bells:
            idle = [bell for bell in launchers if not bell.working]
            for bell in idle[:1] or launchers:
                bell.ring()

    def ring_enders() -> None:
        for _, ender in bells:
            ender.ring()

    events = JobEvents(store, settings, service.clock, to_launch=ring_launchers, to_end=ring_enders)
    clusters = []
    for backend, pace in _backends(service, settings, client):
        clusters.append(backend.cluster)
        launching = Launching(
            store,
            backend,
            specs,
            service.clock,
            service.log,
            service.metrics,
            lease_seconds=pace.lease_seconds,
            stop_grace_seconds=settings.stop_grace_seconds,
            restoring=lambda: service.standing.restoring,
            batch=pace.batch,
        )
        ending = Ending(store, backend, service.clock, service.log, service.metrics)
        sweep = Sweep(store, backend, service.log, service.metrics)
        bells.append(_declare_loops(service, launching, ending, sweep, pace.sweep_seconds))
    service.consume("launcher")(without_lost_time(service, events.on_jobs))

    @service.on_start
    async def take_back() -> None:
        """What this replica had begun before it ended is nobody else's."""
        await store.take_over(service.clock.now(), at_start=True)

    @service.every(_PURGE_SECONDS)
    async def purge() -> None:
        """Remove what no restored database will ask for any more, and what killed writers have left."""
        await client.remove_torn(service.clock.now() - _TORN_AFTER)
        before = service.clock.now() - timedelta(seconds=settings.restore_window_seconds)
        while await client.purge_released(before, _PURGED_AT_ONCE) == _PURGED_AT_ONCE:
            pass

    @service.every(_LEASES_SECONDS)
    async def leases() -> None:
        """Take over launches whose launcher went silent."""
        if taken := await store.take_over(service.clock.now(), at_start=False):
            service.log.warning("launches taken over", count=taken)
            ring_launchers()

    @service.every(_STRANDED_SECONDS)
    async def stranded() -> None:
        """Say what waits for a cluster that the file does not name any more."""
        for cluster, count in await store.strand(clusters):
            why = f"TIDEGATE_CLUSTERS names no cluster {cluster}"
            service.log.warning("launches wait", cluster=cluster, count=count, why=why)

    async def ask_newest(question: NewestAsked) -> NewestAnswer:
        answer = await service.call("api", "newest", question.model_dump_json().encode())
        return NewestAnswer.model_validate_json(answer)

    audit = Audit(store.open_since, events.audited, ask_newest, service.clock)

    @service.every(_AUDIT_SECONDS)
    async def ask_about_open_launches() -> None:
        """Find out about launches whose job has gone on without an event reaching us."""
        await audit.once()

    return service


def _backends(service: Service, settings: LauncherSettings, client: LocalClient) -> Iterator[tuple[Backend, _Pace]]:
    """This machine and every cluster of the file."""
    yield LocalBackend(client, settings.deployment), _Pace(settings.launch_lease_seconds, BATCH, _SWEEP_SECONDS)
    for name, cluster in clusters_of(settings.clusters).items():
        backend = SlurmBackend(
            name,
            cluster,
            client_of(cluster),
            client.root,
            service.clock,
            service.log,
            service.metrics,
            deployment=settings.deployment,
        )
        lease_seconds = max(settings.launch_lease_seconds, _SLURM_LEASE_SECONDS)
        yield backend, _Pace(lease_seconds, _SLURM_ROUNDS * cluster.submissions_at_once, _SLURM_SWEEP_SECONDS)


def _declare_loops(
    service: Service, launching: Launching, ending: Ending, sweep: Sweep, sweep_seconds: float
) -> tuple[list[Bell], Bell]:
    """One cluster's loops; what wakes those that launch, and the one that ends."""
    to_launch, to_end = [Bell() for _ in range(_BATCHES_AT_ONCE)], Bell()

    def declare_launch_loop(bell: Bell) -> None:
        @service.every(0)
        async def launch() -> None:
            """Hand launches over as they come."""
            await _work(launching.once, bell)

    for bell in to_launch:
        declare_launch_loop(bell)

    @service.every(0)
    async def end() -> None:
        """Seal attempts as they end."""
        await _work(ending.once, to_end)

    @service.every(_IDLE_SECONDS)
    async def release() -> None:
        """Let the records of sealed attempts go."""
        while await ending.release():
            pass

    @service.every(sweep_seconds)
    async def sealed_and_seen() -> None:
        """Kill what runs although its attempt is sealed."""
        await sweep.once()

    return to_launch, to_end


async def _work(once: Callable[[], Awaitable[float | None]], bell: Bell) -> None:
    """Do what is due, then wait for more."""
    await bell.begin()
    bell.working = True
    try:
        pause = await once()
    finally:
        bell.working = False
    if pause is None or pause > 0:
        await bell.wait(_IDLE_SECONDS if pause is None else min(pause, _IDLE_SECONDS))
