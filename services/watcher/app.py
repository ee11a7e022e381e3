"""The watcher put together: settings, store, eyes, handlers, loops."""

import asyncio
from datetime import timedelta
from typing import Final

from services.watcher.absence import LONGEST_GAP
from services.watcher.capacity import CapacityReports
from services.watcher.eyes import Eyes, S
from services.watcher.handlers import JobEvents
from services.watcher.idling import Idling
from services.watcher.local import LocalEyes
from services.watcher.logs import read
from services.watcher.observing import Observing
from services.watcher.restoring import Restoring
from services.watcher.settings import WatcherSettings
from services.watcher.slurm.attempts import Seen
from services.watcher.slurm.eyes import SlurmEyes
from services.watcher.slurm.kept import Kept
from services.watcher.slurm.room import SECONDS as ROOM_SECONDS
from services.watcher.slurm.room import RoomReports
from services.watcher.store import Store
from services.watcher.words import Words
from shared.backends.clusters import LOCAL
from shared.backends.local.capacity import Capacity as LocalCapacity
from shared.backends.local.capacity import capacity as local_capacity
from shared.backends.local.client import LocalClient
from shared.backends.local.endpoint import open_endpoint
from shared.backends.local.observer import Observer
from shared.backends.local.sightings import Observation
from shared.backends.slurm.configured import client_of, clusters_of
from shared.contracts.queries import (
    Capacity,
    EndpointAnswer,
    EndpointAsked,
    LogsAsked,
    NewestAnswer,
    NewestAsked,
)
from shared.contracts.subjects import cluster_subject
from shared.runtime.audit import Audit
from shared.runtime.clock import Clock
from shared.runtime.leases import Lease
from shared.runtime.lost_time import without_lost_time
from shared.runtime.service import Service

_LIVE_SECONDS: Final = 0.025
_IDLE_SECONDS: Final = 0.15
_QUICK_LOOKS: Final = 20
"""So many quick looks follow an event that says something is about to start, or to end."""
_CAPACITY_SECONDS: Final = 1.0
_KEEP_SECONDS: Final = 2.0
_IDLE_LOOK_SECONDS: Final = 2.0
_AUDIT_SECONDS: Final = 30.0
_SLOWEST_LOOK_SECONDS: Final = 30.0
"""So long a look at a Slurm cluster may take: commands that take longer have not answered."""


class Pace:
    """How long to wait between two looks: little while something lives or is expected, more when idle."""

    def __init__(self) -> None:
        self._called = asyncio.Event()
        self._quick = 0

    def hurry(self) -> None:
        """An event came: look now, and often for a while."""
        self._quick = _QUICK_LOOKS
        self._called.set()

    async def wait(self, *, alive: bool) -> None:
        """Until the next look is due."""
        if alive or self._quick > 0:
            self._quick = max(0, self._quick - 1)
            await asyncio.sleep(_LIVE_SECONDS)
            return
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._called.wait()
        except TimeoutError:
            pass
        self._called.clear()


def create(settings: WatcherSettings, *, clock: Clock | None = None) -> Service:
    """The service, ready to run."""
    service = Service("watcher", settings, clock=clock, restores_itself=True)
    store = Store(service.db)
    backend = LocalClient(settings.local_root)
    pace = Pace()
    lease = service.lease("observe")
    words = Words(service.log, service.metrics)
    clusters = clusters_of(settings.clusters)
    restoring = Restoring(
        store,
        backend,
        words,
        service.log,
        clusters=(LOCAL, *clusters),
        standing=lambda: service.standing,
        in_step=service.mark_in_step,
    )

    def observing_with(eyes: Eyes[S], longest_gap: timedelta = LONGEST_GAP) -> Observing[S]:
        return Observing(
            store,
            eyes,
            restoring,
            service.clock,
            service.log,
            service.metrics,
            lease=lease,
            epoch=lambda: service.standing.epoch,
            lost_after=timedelta(seconds=settings.lost_after_seconds),
            longest_gap=longest_gap,
        )

    observing = observing_with(LocalEyes(Observer(backend.root).observe, backend, words))
    idling = Idling(
        store,
        backend.root,
        service.clock,
        service.log,
        lease=lease,
        epoch=lambda: service.standing.epoch,
        warning_seconds=settings.idle_warning_seconds,
    )
    events = JobEvents(store, service.clock, pace.hurry)
    service.consume("watcher")(without_lost_time(service, events.on_jobs))

    async def publish(capacity: Capacity) -> None:
        of_one = "capacity" if capacity.cluster == LOCAL else f"capacity.{capacity.coretype}"
        subject = cluster_subject(capacity.cluster, of_one)
        await service.publish(subject, capacity.model_dump_json().encode(), stream="CLUSTERS")

    def has() -> LocalCapacity | None:
        return local_capacity(backend.root, Observation(complete=True, submissions=()))

    reports = CapacityReports(has, publish, service.clock, service.log)

    @service.every(0)
    async def observe() -> None:
        """Look at the backend, or stand by."""
        await pace.wait(alive=await observing.once())

    @service.every(_CAPACITY_SECONDS)
    async def capacity() -> None:
        """Say what this machine has."""
        if lease.held:
            await reports.once()

    @service.every(_KEEP_SECONDS)
    async def keep() -> None:
        """Remember last sightings and absences."""
        await observing.keep()

    @service.every(_IDLE_LOOK_SECONDS)
    async def look_for_idle_workstations() -> None:
        """Announce and suspend what nobody uses."""
        await idling.once()

    for name, cluster in clusters.items():
        client = client_of(cluster)
        eyes = SlurmEyes(
            name,
            cluster,
            client,
            backend.root,
            service.clock,
            service.log,
            service.metrics,
            Kept(store),
            deployment=settings.deployment,
            restored_since=lambda: service.standing.backup_at if service.standing.restoring else None,
        )
        observing_it = observing_with(eyes, timedelta(seconds=_SLOWEST_LOOK_SECONDS + cluster.tick_seconds))
        rooms = RoomReports(name, cluster, client, publish, service.clock, service.log)
        _declare_loops(service, observing_it, rooms, lease, cluster.tick_seconds)

    async def ask_newest(question: NewestAsked) -> NewestAnswer:
        answer = await service.call("api", "newest", question.model_dump_json().encode())
        return NewestAnswer.model_validate_json(answer)

    audit = Audit(store.open_since, events.audited, ask_newest, service.clock)

    @service.every(_AUDIT_SECONDS)
    async def ask_about_open_attempts() -> None:
        """Find out about attempts whose job has gone on without an event reaching us."""
        if lease.held:
            await audit.once()

    @service.rpc("logs")
    async def logs(request: bytes) -> bytes:
        """`LogsAsked` -> `LogsAnswer`: bytes of an attempt's output."""
        asked = LogsAsked.model_validate_json(request)
        answer = await asyncio.to_thread(read, settings.local_root, asked)
        return answer.model_dump_json().encode()

    @service.rpc("endpoint")
    async def endpoint(request: bytes) -> bytes:
        """`EndpointAsked` -> `EndpointAnswer`: where a workstation's command listens, and its secret."""
        asked = EndpointAsked.model_validate_json(request)
        submission = await store.submission_of(asked.tenant, asked.job, asked.attempt)
        found = None if submission is None else await asyncio.to_thread(open_endpoint, backend.root, submission)
        answer = EndpointAnswer() if found is None else EndpointAnswer(port=found.port, secret=found.secret)
        return answer.model_dump_json().encode()

    return service


def _declare_loops(
    service: Service, observing: Observing[Seen], rooms: RoomReports, lease: Lease, tick_seconds: float
) -> None:
    """One Slurm cluster's loops."""

    @service.every(tick_seconds)
    async def observe() -> None:
        """Look at the cluster, or stand by."""
        await observing.once()

    @service.every(_KEEP_SECONDS)
    async def keep() -> None:
        """Remember last sightings and absences."""
        await observing.keep()

    @service.every(ROOM_SECONDS)
    async def capacity() -> None:
        """Say what the cluster has."""
        if lease.held:
            await rooms.once()
