"""Wires the gatekeeper: settings, stores, handlers."""

from datetime import timedelta
from typing import Final

from services.gatekeeper.admission import Policy
from services.gatekeeper.audit import Audit
from services.gatekeeper.handlers import Gatekeeper
from services.gatekeeper.hearing import Hearing
from services.gatekeeper.queries import Queries
from services.gatekeeper.restored import Restored
from services.gatekeeper.room import Limits
from services.gatekeeper.settings import GatekeeperSettings
from shared.runtime.clock import Clock
from shared.runtime.lost_time import without_lost_time
from shared.runtime.service import Service, Work

_LOOK_SECONDS: Final = 0.5


def build(settings: GatekeeperSettings, *, clock: Clock | None = None) -> Service:
    """The service, ready to run."""
    service = Service("gatekeeper", settings, clock=clock)
    restored = Restored(lambda: service.standing, service.broker.lag)
    silent_after = timedelta(seconds=settings.cluster_silent_seconds)
    hearing = Hearing(lambda: service.broker.connected, service.clock, silent_after)
    policy = Policy(
        default=Limits(settings.default_slots, settings.default_gpus),
        silent_after=silent_after,
        keep_after=timedelta(seconds=settings.keep_after_seconds),
        source=f"gatekeeper/{settings.replica}",
        standing=restored.now,
        hears=hearing.hears,
    )
    gatekeeper = Gatekeeper(service.db, service.clock, policy)
    queries = Queries(service.db, service.clock, policy)
    audit = Audit(service.db, service.clock, gatekeeper, lambda body: service.call("api", "newest", body))
    service.consume("gatekeeper")(without_lost_time(service, gatekeeper.on_events))
    service.consume("gatekeeper_clusters")(gatekeeper.on_clusters)
    service.on_start(restored.look)
    service.every(_LOOK_SECONDS)(restored.look)
    turn = service.lease("pass")

    def alone(work: Work) -> Work:
        """The same by one replica for all."""

        async def in_turn() -> None:
            if turn.held:
                await work()

        in_turn.__name__ = work.__name__
        return in_turn

    service.every(1)(alone(gatekeeper.tick))
    service.every(60)(alone(gatekeeper.purge))
    service.every(60)(alone(audit.audit))
    for query in (queries.fits, queries.positions, queries.quota_get, queries.quota_set):
        service.rpc(query.__name__)(query)
    return service
