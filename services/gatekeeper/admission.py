"""One pass at the gates: load what is free, decide in memory, write in sets. Runs in the caller's transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from opentelemetry import metrics

from services.gatekeeper.domain import Admit, Hold, Reservation, decide
from services.gatekeeper.gates import Closed, gates_of
from services.gatekeeper.line import Told, Waiting
from services.gatekeeper.room import BATCH, EVERYBODY, Limits, Pool, Room
from services.gatekeeper.store import Store
from shared.contracts.facts import encode_fact
from shared.lifecycle.facts import Admitted, AnyFact, Held, Version
from shared.runtime.outbox import Outgoing
from shared.runtime.standing import Standing

SERVICE: Final = "gatekeeper"
_NEVER_RESTORED: Final = Standing(epoch=1, restoring=False, backup_at=None)
_meter = metrics.get_meter("tidegate")
_admitted = _meter.create_counter("tidegate_gatekeeper_admitted", description="Attempts let through")
_held = _meter.create_counter("tidegate_gatekeeper_held", description="Attempts told of a closed gate")


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say. `source` names this replica in its facts; `standing` tells the database's epoch, and
    whether it was restored and nobody knows yet what runs: then nothing is admitted. `hears`: the silence of a
    cluster is its own."""

    default: Limits
    silent_after: timedelta
    keep_after: timedelta
    source: str
    standing: Callable[[], Standing] = lambda: _NEVER_RESTORED
    hears: Callable[[], bool] = lambda: True

    @property
    def epoch(self) -> int:
        """What facts carry."""
        return self.standing().epoch

    @property
    def restoring(self) -> bool:
        """Whether what is free is unknown, whatever clusters say."""
        return self.standing().restoring


@dataclass(frozen=True, slots=True)
class Locked:
    """The gates, locked: nobody else admits until this transaction ends."""

    limits: Mapping[str, Limits]
    pools: Sequence[Pool]


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass did. `again` names places in the line where others may fit still: it was full, or moved somebody."""

    admitted: int = 0
    told: int = 0
    again: frozenset[str] = frozenset()


NOTHING_DONE: Final = Passed()


async def lock_gates(store: Store, tenants: Collection[str]) -> Locked:
    """Lock the ceiling, then these tenants' quotas, then the pools."""
    await store.lock_quotas([EVERYBODY])
    return Locked(await store.lock_quotas([EVERYBODY, *tenants]), await store.lock_pools())


async def pass_gates(
    store: Store, locked: Locked, due: Sequence[Waiting], freed: Collection[str], policy: Policy, now: datetime
) -> Passed:
    """Decide on `due`, and on the first of those who wait where room was freed. The gates are locked by the caller.

    Everybody who draws on what `due` draws on, and would fit, is looked at too, so that nobody jumps the line; so are
    those who have waited so long that GPUs are kept for them.
    """
    uses = await store.sums()
    room = Room.of(locked.pools, locked.limits, policy.default, uses, now, policy.silent_after, policy.restoring)
    keys = frozenset((*freed, *(key for job in due for key in job.keys)))
    aged = await store.aged(room.rivals(keys), now - policy.keep_after, [job.job for job in due])
    heads = await store.heads(room.heads(keys), [job.job for job in (*due, *aged)])
    if unknown := {job.tenant for job in (*aged, *heads)} - locked.limits.keys():
        room.limits.update(await store.lock_quotas(unknown))
    verdicts = decide([*due, *aged, *heads], room, keep_after=policy.keep_after)
    admits: list[tuple[Waiting, str]] = []
    holds: list[tuple[Waiting, tuple[Closed, ...]]] = []
    for job, verdict in verdicts:
        match verdict:
            case Admit(cluster):
                admits.append((job, cluster))
            case Hold(gates):
                holds.append((job, gates))
            case never:
                assert_never(never)
    admitted = await _admit(store, admits, policy, now)
    told, moved = await _hold(store, holds, policy, now)
    _admitted.add(admitted)
    _held.add(told)
    from_line = {job.job for job in (*aged, *heads)}
    full = len(heads) >= BATCH and any(job.job in from_line for job, _ in admits)
    again = full or not moved.isdisjoint(from_line)
    return Passed(admitted, told, keys if again else frozenset())


async def _admit(store: Store, admits: Sequence[tuple[Waiting, str]], policy: Policy, now: datetime) -> int:
    numbers = await store.numbers(len(admits))
    reservations = [
        Reservation(job.job, job.attempt, n, job.tenant, cluster, job.coretype, job.gpus, now)
        for (job, cluster), n in zip(admits, numbers, strict=True)
    ]
    booked = await store.book(reservations)
    await store.leave([one.job for one in reservations])
    facts = [admitted_fact(one, policy) for one in reservations if one.job in booked]
    await store.tx.enqueue([outgoing(fact) for fact in facts])
    return len(booked)


async def _hold(
    store: Store, holds: Sequence[tuple[Waiting, tuple[Closed, ...]]], policy: Policy, now: datetime
) -> tuple[int, set[str]]:
    """Write the line; tell those whose first gate or its reason's class is another. How many, and who moved."""
    news = [job for job, gates in holds if job.told is None or job.told.kind != gates[0].kind]
    numbers = dict(zip((job.job for job in news), await store.numbers(len(news)), strict=True))
    rows: list[Waiting] = []
    facts: list[Held] = []
    moved: set[str] = set()
    for job, gates in holds:
        first = gates[0]
        told = job.told
        if (n := numbers.get(job.job)) is not None:
            told = Told(first.kind, n, now, gates_of(gates))
            facts.append(held_fact(job, told, policy))
        if job.waits_for != first.waits_for:
            moved.add(job.job)
        rows.append(replace(job, waits_for=first.waits_for, told=told))
    await store.stand(rows)
    await store.tx.enqueue([outgoing(fact) for fact in facts])
    return len(news), moved


def outgoing(fact: AnyFact, *, answer: int | None = None) -> Outgoing:
    """The message of a fact; `answer` tells a known one again, under a new message id."""
    wire = encode_fact(SERVICE, fact, answer=answer)
    return Outgoing(wire.subject, wire.msg_id, wire.key, wire.body)


def admitted_fact(one: Reservation, policy: Policy) -> Admitted:
    """The number of an admission is the version of its fact, in the epoch in which it is told."""
    return Admitted(
        job=one.job,
        tenant=one.tenant,
        attempt=one.attempt,
        version=Version(epoch=policy.epoch, n=one.admission),
        at=one.opened_at,
        source=policy.source,
        admission=one.admission,
        cluster=one.cluster or None,
    )


def held_fact(job: Waiting, told: Told, policy: Policy) -> Held:
    return Held(
        job=job.job,
        tenant=job.tenant,
        attempt=job.attempt,
        version=Version(epoch=policy.epoch, n=told.n),
        at=told.at,
        source=policy.source,
        gates=told.gates,
    )
