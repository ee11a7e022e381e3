"""The gates, each a pure function: open (None), or closed with its sentence and its numbers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from services.gatekeeper.line import CEILING, EVENT, TIME, Waiting, pool_key, tenant_key
from services.gatekeeper.room import EVERYBODY, Pool, Room
from shared.lifecycle.facts import Gate
from shared.lifecycle.gates import cooldown_gate, hold_gate, upstream_gate


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed gate. `variant` is its reason's class: numbers may move inside it without being told again.

    `waits_for` is the place in the line where the job stands for as long as this gate is its first closed one.
    """

    gate: Gate
    variant: str
    waits_for: str

    @property
    def kind(self) -> str:
        return f"{self.gate.name}/{self.variant}"


NEVER: Final = "never"
"""The variant of a gate that cannot open as things are configured: the limit itself is below what is asked."""
UNKNOWN: Final = "capacity/unknown"
FULL: Final = "capacity/full"
RESTORING: Final = "the database was restored from a backup: waiting until what runs has been seen"


def hold(job: Waiting, room: Room) -> Closed | None:
    """Closed by a person."""
    mark = job.hold
    if mark is None:
        return None
    return Closed(hold_gate(job.job, mark), "admin" if mark.by_admin else "user", EVENT)


def upstream(job: Waiting, room: Room) -> Closed | None:
    """Closed until the steps before it have succeeded."""
    if job.upstream is None:
        return None
    return Closed(upstream_gate(job.upstream), "", EVENT)


def cooldown(job: Waiting, room: Room) -> Closed | None:
    """Closed for a while after a failed attempt."""
    until = job.cooldown_until
    if until is None or until <= room.now:
        return None
    return Closed(cooldown_gate(job.job, job.attempt, until), "", TIME)


def quota_slots(job: Waiting, room: Room) -> Closed | None:
    """Closed while the tenant, or the deployment, runs as many jobs as it may."""
    for owner, key in ((job.tenant, tenant_key(job.tenant)), (EVERYBODY, CEILING)):
        limit, used = room.limits_of(owner).slots, room.used_by(owner).slots
        if limit is None or used < limit:
            continue
        never = limit == 0
        reason = f"needs a job slot; {whose(owner)} has 0 of {limit} free"
        gate = Gate(
            name="quota.slots", reason=reason, have=0, need=1, scope=whose(owner), lifted_by=_lifter(owner, never)
        )
        return Closed(gate, _variant(owner, never), key)
    return None


def quota_gpus(job: Waiting, room: Room) -> Closed | None:
    """Closed while the tenant, or the deployment, has too few GPUs left for the job."""
    for owner, key in ((job.tenant, tenant_key(job.tenant)), (EVERYBODY, CEILING)):
        limit, used = room.limits_of(owner).gpus, room.used_by(owner).gpus
        if limit is None or job.gpus == 0 or used + job.gpus <= limit:
            continue
        free = max(0, limit - used)
        never = job.gpus > limit
        reason = over_quota(owner, job.gpus, limit) if never else _few(job.gpus, whose(owner), free, limit)
        gate = Gate(
            name="quota.gpus",
            reason=reason,
            have=free,
            need=job.gpus,
            scope=whose(owner),
            lifted_by=_lifter(owner, never),
        )
        return Closed(gate, _variant(owner, never), key)
    return None


def capacity(job: Waiting, room: Room) -> Closed | None:
    """Closed while no cluster that offers the coretype has room, or while nobody knows whether one has."""
    if room.fitting(job.coretype, job.region, job.gpus) is not None:
        return None
    offers = room.offers(job.coretype, job.region)
    known = [pool for pool in offers if room.known(pool)]
    if not offers:
        return _capacity(job, not_offered(job.coretype, job.region, room), "not offered", "a cluster that offers it")
    if room.restoring:
        return _capacity(job, RESTORING, "unknown", "the services, when they are in step again")
    if not known:
        latest = max(offers, key=lambda pool: pool.at)
        return _capacity(job, _unknown(latest), "unknown", f"cluster {latest.cluster}")
    most = room.most_gpus(job.coretype, job.region)
    if most is not None and job.gpus > most:
        return _capacity(job, over_pool(job.coretype, job.gpus, most), NEVER, "an operator", have=most)
    with_gpus = [pool for pool in known if room.free_gpus(pool) >= job.gpus]
    if with_gpus:
        slots = max(with_gpus, key=lambda pool: pool.slots)
        reason = f"needs a job slot; cluster {slots.cluster} has 0 of {slots.slots} free for coretype {job.coretype}"
        return _capacity(job, reason, "full", "jobs that end", have=0, need=1)
    if kept := [pool for pool in known if room.unkept_gpus(pool) >= job.gpus]:
        older = room.kept[kept[0].key]
        reason = (
            f"needs {count(job.gpus)}; the {room.unkept_gpus(kept[0])} free on cluster {kept[0].cluster} are kept "
            f"for a job that needs {older} and has waited longer"
        )
        return _capacity(job, reason, "kept", "jobs that end", have=0)
    best = max(known, key=room.free_gpus)
    where = f"cluster {best.cluster}"
    reason = f"{_few(job.gpus, where, room.free_gpus(best), best.total_gpus or best.gpus)} of coretype {job.coretype}"
    return _capacity(job, reason, "full", "jobs that end", have=room.free_gpus(best))


GATES: Final[tuple[Callable[[Waiting, Room], Closed | None], ...]] = (
    hold,
    upstream,
    cooldown,
    quota_slots,
    quota_gpus,
    capacity,
)
"""In the order in which they are named: hold, upstream, cooldown, then throttle, window and budget once they are built,
then quota.slots, quota.gpus, capacity."""


def closed_gates(job: Waiting, room: Room) -> tuple[Closed, ...]:
    """All gates that are closed for the job now, in their order; none: it may run."""
    return tuple(closed for gate in GATES if (closed := gate(job, room)) is not None)


def gates_of(closed: Iterable[Closed]) -> tuple[Gate, ...]:
    """What is reported of them."""
    return tuple(one.gate for one in closed)


def limit_kind(owner: str) -> str:
    """What those are told who ask more GPUs than the owner's whole quota."""
    return f"quota.gpus/{_variant(owner, True)}"


def never_fits(tenant: str, gpus: int, coretype: str, region: str | None, room: Room) -> str | None:
    """Why such a job could never pass, as limits and clusters are configured; None where it could.

    Before any cluster has reported, nothing can be said about capacity: the gate says it later.
    """
    for owner in (tenant, EVERYBODY):
        limits = room.limits_of(owner)
        if limits.slots == 0:
            return f"needs a job slot; {whose(owner)} may run 0 jobs at a time"
        if limits.gpus is not None and gpus > limits.gpus:
            return over_quota(owner, gpus, limits.gpus)
    if not room.pools:
        return None
    if not room.offers(coretype, region):
        return not_offered(coretype, region, room)
    most = room.most_gpus(coretype, region)
    return over_pool(coretype, gpus, most) if most is not None and gpus > most else None


def whose(owner: str) -> str:
    """The owner of a quota, in words."""
    return "the deployment" if owner == EVERYBODY else f"tenant {owner}"


def over_quota(owner: str, gpus: int, limit: int) -> str:
    return f"needs {count(gpus)}; {whose(owner)} may use {limit} at most"


def over_pool(coretype: str, gpus: int, most: int) -> str:
    return f"needs {count(gpus)}; coretype {coretype} has {most} at most on one cluster"


def not_offered(coretype: str, region: str | None, room: Room) -> str:
    """Names what is offered instead."""
    where = f" in region {region}" if region is not None else ""
    known = sorted({f"{pool.coretype}{f' in {pool.region}' if pool.region else ''}" for pool in room.pools})
    return f"no cluster offers coretype {coretype}{where}; offered: {', '.join(known) or 'nothing yet'}"


def count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"


def _few(gpus: int, who: str, free: int, limit: int) -> str:
    return f"needs {count(gpus)}; {who} has {free} of {limit} free"


def _unknown(pool: Pool) -> str:
    why = f"has not reported since {_at(pool.at)}" if pool.reachable else f"cannot be reached since {_at(pool.at)}"
    return f"what coretype {pool.coretype} has free is unknown: cluster {pool.cluster} {why}"


def _capacity(
    job: Waiting, reason: str, variant: str, lifted_by: str, *, have: int | None = None, need: int | None = None
) -> Closed:
    gate = Gate(
        name="capacity",
        reason=reason,
        have=have,
        need=job.gpus if need is None else need,
        scope=f"coretype {job.coretype}",
        lifted_by=lifted_by,
    )
    return Closed(gate, variant, pool_key(job.coretype, job.region))


def _variant(owner: str, never: bool) -> str:
    return ("ceiling" if owner == EVERYBODY else "tenant") + (f" {NEVER}" if never else "")


def _lifter(owner: str, never: bool) -> str:
    admin = "an admin" if owner == EVERYBODY else "a tenant admin"
    return f"{admin}, who raises the limit" if never else f"jobs that end, or {admin}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
