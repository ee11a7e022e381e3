"""The gatekeeper's decisions: who may run now, and which reservations end. Pure: time and sums are arguments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from services.gatekeeper.gates import FULL, Closed, closed_gates
from services.gatekeeper.line import CEILING, Waiting, pool_keys, tenant_key
from services.gatekeeper.room import Pool, Room
from shared.lifecycle.duties import Duty, duties, holdings
from shared.lifecycle.record import JobRecord


@dataclass(frozen=True, slots=True)
class Admit:
    """Every gate is open; the reservation draws on this cluster's pool."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Hold:
    """At least one gate is closed; all that are, in their order."""

    gates: tuple[Closed, ...]


Verdict = Admit | Hold


def decide(waiting: Iterable[Waiting], room: Room, *, keep_after: timedelta) -> list[tuple[Waiting, Verdict]]:
    """A verdict for each job, in the order of the line; what is admitted is booked into `room`.

    A job that a quota holds keeps nobody behind it back: neither another tenant, nor a smaller one of its own. One that
    capacity holds is passed by smaller ones until it has waited for `keep_after`; then the free GPUs are kept for it.
    """
    verdicts: list[tuple[Waiting, Verdict]] = []
    for job in sorted(waiting, key=lambda one: one.place):
        closed = closed_gates(job, room)
        pool = None if closed else room.fitting(job.coretype, job.region, job.gpus)
        if pool is None:
            verdicts.append((job, Hold(closed)))
            if job.gpus and closed[0].kind == FULL and job.queued_at <= room.now - keep_after:
                room.keep(job.coretype, job.region, job.gpus)
            continue
        room.book(job.tenant, pool.cluster, job.coretype, job.gpus)
        verdicts.append((job, Admit(pool.cluster)))
    return verdicts


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an admission booked. It holds GPUs and a slot until each has its end, set once."""

    job: str
    attempt: int
    admission: int
    tenant: str
    cluster: str
    coretype: str
    gpus: int
    opened_at: datetime
    holds_gpus: bool = True
    holds_slot: bool = True


@dataclass(frozen=True, slots=True)
class Known:
    """What the slice has of a job, its row locked: the newest version heard, its place in the line, what is open."""

    attempt: int
    version: tuple[int, int]
    waiting: Waiting | None = None
    open: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """Ends parts of a reservation, with the reason."""

    reservation: Reservation
    gpus: bool
    slot: bool
    why: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What a newer record means for the slice.

    `question`: the version was known already. `wait`: it stands in the line; `evaluate`: its gates are to be looked at.
    `admitted`: it was let through, and its record does not know it yet (the fact is on its way). `book`: it is in other
    services' hands without a reservation. `move`: its reservation draws on another cluster than was booked.
    """

    stale: bool = False
    question: bool = False
    ends: tuple[End, ...] = ()
    wait: Waiting | None = None
    evaluate: bool = False
    admitted: Reservation | None = None
    book: Reservation | None = None
    move: tuple[Reservation, str] | None = None


STALE: Final = Settled(stale=True)


def settle(record: JobRecord, known: Known, now: datetime) -> Settled:
    """Compare a record with the slice. An older version changes nothing; a newer attempt ends everything older."""
    version = (record.epoch, record.seq)
    if version < known.version:
        return STALE
    ends = tuple(end for one in known.open if (end := _end(record, one)) is not None)
    ended = {end.reservation: end for end in ends}
    standing = next(
        (
            one
            for one in known.open
            if one.attempt == record.attempt and one.holds_slot and not (one in ended and ended[one].slot)
        ),
        None,
    )
    settled = Settled(question=version == known.version, ends=ends)
    if Duty.ADMIT in duties(record):
        if standing is not None:
            return replace(settled, admitted=standing)
        wait = Waiting.of(record)
        before = known.waiting
        if before is None or before.attempt != wait.attempt:
            return replace(settled, wait=wait, evaluate=True)
        same = before.asks == wait.asks
        return replace(settled, wait=replace(wait, waits_for=before.waits_for, told=before.told), evaluate=not same)
    if standing is not None:
        cluster = record.backend.cluster
        moved = cluster is not None and cluster != standing.cluster
        return replace(settled, move=(standing, cluster)) if moved and cluster is not None else settled
    gpus, slot = holdings(record)
    if not record.deleted and (slot or (gpus and not known.open)):
        return replace(settled, book=_adopted(record, now, gpus, slot))
    return settled


def _end(record: JobRecord, one: Reservation) -> End | None:
    """Which parts of an open reservation the record ends."""
    if record.deleted:
        return _whole(one, "the job was deleted")
    if one.attempt < record.attempt:
        return _whole(one, f"attempt {record.attempt} took its place")
    if one.attempt > record.attempt:  # a restore took the record back; evidence of the attempt would book it anew
        return _whole(one, f"the record was taken back to attempt {record.attempt}")
    if Duty.ADMIT in duties(record):
        refused = record.admission_refused == one.admission
        return _whole(one, "the admission was refused") if refused else None
    if record.current.admission not in (None, 0, one.admission):
        return _whole(one, f"admission {record.current.admission} took its place")
    gpus, slot = holdings(record)
    end_gpus, end_slot = one.holds_gpus and not gpus, one.holds_slot and not slot
    if not end_gpus and not end_slot:
        return None
    return End(one, end_gpus, end_slot, f"the attempt is {record.state}" if end_slot else "its GPUs are free")


def _whole(one: Reservation, why: str) -> End:
    return End(one, one.holds_gpus, one.holds_slot, why)


def _adopted(record: JobRecord, now: datetime, gpus: bool, slot: bool) -> Reservation:
    """Booked whatever the limits say: it is in other services' hands already."""
    return Reservation(
        job=record.id,
        attempt=record.attempt,
        admission=record.current.admission or 0,
        tenant=record.tenant,
        cluster=record.backend.cluster or "",
        coretype=record.resources.coretype,
        gpus=record.resources.gpus,
        opened_at=now,
        holds_gpus=gpus,
        holds_slot=slot,
    )


def freed_keys(ends: Sequence[End], pools: Sequence[Pool]) -> frozenset[str]:
    """The places in the line that may have room now."""
    regions: Mapping[tuple[str, str], str | None] = {pool.key: pool.region for pool in pools}
    keys = {CEILING} if ends else set()
    for end in ends:
        one = end.reservation
        keys.add(tenant_key(one.tenant))
        keys.update(pool_keys(one.coretype, regions.get((one.cluster, one.coretype))))
    return frozenset(keys)
