"""The gatekeeper's SQL: set-based and guarded, inside one transaction that the caller opened.

Locks are taken in one order: the gates (ceiling first, then tenants by name, then pools), the attempts by job, then the
line. Everything that is read to decide is read in a statement after the one that took the lock: a statement that waited
for a lock still sees the other tables as they were before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from services.gatekeeper.domain import End, Known, Reservation
from services.gatekeeper.line import Told, Waiting
from services.gatekeeper.room import EVERYBODY, Head, Limits, Pool, Use
from shared.lifecycle.facts import Gate
from shared.lifecycle.record import HoldMark, JobRecord
from shared.lifecycle.states import ACTIVE, State
from shared.runtime.database import Tx

# The ceiling is part of every admission's draw, so its lock makes admissions take turns, here and in other replicas.
LOCK_QUOTAS: Final = "SELECT tenant, slots, gpus FROM quotas WHERE tenant = ANY ($1) ORDER BY tenant FOR UPDATE"
POOLS: Final = "SELECT cluster, coretype, region, gpus, slots, total_gpus, at, reachable FROM pools"
LOCK_POOLS: Final = f"{POOLS} ORDER BY cluster, coretype FOR UPDATE"

# What open reservations hold: as many rows as there are tenants with running jobs, times pools.
SUMS: Final = """
SELECT tenant, cluster, coretype,
       coalesce(sum(gpus) FILTER (WHERE gpus_ended_at IS NULL), 0) AS gpus,
       count(*) FILTER (WHERE slot_ended_at IS NULL) AS slots
FROM reservations WHERE gpus_ended_at IS NULL OR slot_ended_at IS NULL
GROUP BY tenant, cluster, coretype
"""

MAKE_ATTEMPTS: Final = """
INSERT INTO attempts (job, tenant, attempt, epoch, seq)
SELECT job, tenant, 0, 0, 0 FROM unnest($1::text[], $2::text[]) AS new (job, tenant) ORDER BY job
ON CONFLICT DO NOTHING
"""
LOCK_ATTEMPTS: Final = "SELECT job, attempt, epoch, seq FROM attempts WHERE job = ANY ($1) ORDER BY job FOR UPDATE"
SET_ATTEMPTS: Final = """
UPDATE attempts SET attempt = new.attempt, epoch = new.epoch, seq = new.seq, ended_at = new.ended_at
FROM unnest($1::text[], $2::int[], $3::int[], $4::bigint[], $5::timestamptz[])
    AS new (job, attempt, epoch, seq, ended_at)
WHERE attempts.job = new.job
"""

_LINE: Final = """
job, attempt, tenant, priority, queued_at, gpus, coretype, region, hold, upstream, cooldown_until, waits_for,
told, told_n, told_at, gates
"""
WAITING: Final = f"SELECT {_LINE} FROM waiting WHERE job = ANY ($1)"

# The first of each place in the line that are small enough. A row that another replica holds is being settled there.
HEADS: Final = f"""
SELECT head.* FROM unnest($1::text[], $2::int[], $3::int[]) AS place (key, gpus, most)
CROSS JOIN LATERAL (
    SELECT {_LINE} FROM waiting
    WHERE waits_for = place.key AND gpus <= place.gpus AND job <> ALL ($4::text[])
    ORDER BY priority DESC, queued_at, job LIMIT place.most FOR UPDATE SKIP LOCKED
) AS head
"""
# Whoever has waited so long that GPUs are kept for them: the first of each place.
AGED: Final = f"""
SELECT first.* FROM unnest($1::text[]) AS place (key)
CROSS JOIN LATERAL (
    SELECT {_LINE} FROM waiting
    WHERE waits_for = place.key AND gpus > 0 AND queued_at <= $2 AND job <> ALL ($3::text[])
    ORDER BY priority DESC, queued_at, job LIMIT 1 FOR UPDATE SKIP LOCKED
) AS first
"""
COOLED: Final = f"""
SELECT {_LINE} FROM waiting WHERE waits_for = 'time' AND cooldown_until <= $1
ORDER BY cooldown_until LIMIT $2 FOR UPDATE SKIP LOCKED
"""
# Whoever waits at a place and was told another kind of reason than the one that holds now.
MISTOLD_BY_PLACE: Final = f"""
SELECT {_LINE} FROM waiting WHERE waits_for = ANY ($1) AND (told = $2) <> $3 LIMIT $4 FOR UPDATE SKIP LOCKED
"""
MISTOLD_BY_LIMIT: Final = f"""
SELECT {_LINE} FROM waiting
WHERE ($1 = '{EVERYBODY}' OR tenant = $1) AND waits_for NOT IN ('event', 'time') AND (gpus > $2) <> (told = $3)
LIMIT $4 FOR UPDATE SKIP LOCKED
"""
# Each place in the line where somebody stands, hopping over the index instead of reading the line.
PLACES: Final = """
WITH RECURSIVE place (key) AS (
    SELECT min(waits_for) FROM waiting
    UNION ALL
    SELECT (SELECT min(waits_for) FROM waiting WHERE waits_for > place.key) FROM place WHERE place.key IS NOT NULL
)
SELECT key FROM place WHERE key IS NOT NULL
"""

STAND: Final = f"""
INSERT INTO waiting ({_LINE})
SELECT * FROM unnest(
    $1::text[], $2::int[], $3::text[], $4::int[], $5::timestamptz[], $6::int[], $7::text[], $8::text[], $9::jsonb[],
    $10::text[], $11::timestamptz[], $12::text[], $13::text[], $14::bigint[], $15::timestamptz[], $16::jsonb[])
ON CONFLICT (job) DO UPDATE SET
    attempt = excluded.attempt, priority = excluded.priority, queued_at = excluded.queued_at, gpus = excluded.gpus,
    coretype = excluded.coretype, region = excluded.region, hold = excluded.hold, upstream = excluded.upstream,
    cooldown_until = excluded.cooldown_until, waits_for = excluded.waits_for, told = excluded.told,
    told_n = excluded.told_n, told_at = excluded.told_at, gates = excluded.gates
"""
LEAVE: Final = "DELETE FROM waiting WHERE job = ANY ($1)"

_RESERVATION: Final = """
job, attempt, admission, tenant, cluster, coretype, gpus, opened_at, gpus_ended_at IS NULL AS holds_gpus,
slot_ended_at IS NULL AS holds_slot
"""
OPEN: Final = f"""
SELECT {_RESERVATION} FROM reservations
WHERE job = ANY ($1) AND (gpus_ended_at IS NULL OR slot_ended_at IS NULL) ORDER BY job, attempt, admission
"""
# A job has one open slot at most, by an index: whoever is second books nothing.
BOOK: Final = """
INSERT INTO reservations
    (job, attempt, admission, tenant, cluster, coretype, gpus, opened_at, gpus_ended_at, slot_ended_at)
SELECT * FROM unnest(
    $1::text[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[], $8::timestamptz[],
    $9::timestamptz[], $10::timestamptz[])
ON CONFLICT DO NOTHING RETURNING job
"""
END: Final = """
UPDATE reservations SET
    gpus_ended_at = coalesce(gpus_ended_at, CASE WHEN ended.gpus THEN $6::timestamptz END),
    slot_ended_at = coalesce(slot_ended_at, CASE WHEN ended.slot THEN $6::timestamptz END),
    ended_why = ended.why
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bool[], $5::bool[], $7::text[])
    AS ended (job, attempt, admission, gpus, slot, why)
WHERE (reservations.job, reservations.attempt, reservations.admission) = (ended.job, ended.attempt, ended.admission)
"""
MOVE: Final = """
UPDATE reservations SET cluster = moved.cluster
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::text[]) AS moved (job, attempt, admission, cluster)
WHERE (reservations.job, reservations.attempt, reservations.admission) = (moved.job, moved.attempt, moved.admission)
"""
NUMBERS: Final = "SELECT nextval('fact_versions') FROM generate_series(1, $1)"

SET_POOLS: Final = """
INSERT INTO pools (cluster, coretype, region, gpus, slots, total_gpus, at, reachable)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::int[], $7::timestamptz[], $8::bool[])
ON CONFLICT (cluster, coretype) DO UPDATE SET
    region = excluded.region,
    gpus = CASE WHEN excluded.reachable THEN excluded.gpus ELSE pools.gpus END,
    slots = CASE WHEN excluded.reachable THEN excluded.slots ELSE pools.slots END,
    total_gpus = CASE WHEN excluded.reachable THEN excluded.total_gpus ELSE pools.total_gpus END,
    at = CASE WHEN excluded.reachable OR pools.reachable THEN excluded.at ELSE pools.at END,
    reachable = excluded.reachable
WHERE pools.at <= excluded.at
"""

PURGE_ATTEMPTS: Final = """
DELETE FROM attempts WHERE job IN (SELECT job FROM attempts WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)
"""
PURGE_RESERVATIONS: Final = """
DELETE FROM reservations WHERE (job, attempt, admission) IN (
    SELECT job, attempt, admission FROM reservations
    WHERE slot_ended_at < $1 AND gpus_ended_at IS NOT NULL ORDER BY slot_ended_at LIMIT $2)
"""


class Store:
    """The slice inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    async def lock_quotas(self, tenants: Iterable[str]) -> dict[str, Limits]:
        """The rows of these tenants, locked in the order of their names; call it with the ceiling first."""
        rows = await self.tx.fetch(LOCK_QUOTAS, sorted(set(tenants)))
        return {row["tenant"]: Limits(row["slots"], row["gpus"]) for row in rows}

    async def lock_pools(self) -> list[Pool]:
        """What clusters offer; reports wait until the decision is made."""
        return [Pool(**row) for row in await self.tx.fetch(LOCK_POOLS)]

    async def sums(self) -> list[Use]:
        """What open reservations hold."""
        return [Use(**row) for row in await self.tx.fetch(SUMS)]

    async def known(self, records: Mapping[str, JobRecord]) -> dict[str, Known]:
        """Lock the rows of these jobs, making those that are new, then read all that is known of them."""
        jobs = sorted(records)
        await self.tx.execute(MAKE_ATTEMPTS, jobs, [records[job].tenant for job in jobs])
        heard = {row["job"]: row for row in await self.tx.fetch(LOCK_ATTEMPTS, jobs)}
        line = {row["job"]: waiting_of(row) for row in await self.tx.fetch(WAITING, jobs)}
        held: dict[str, list[Reservation]] = {}
        for row in await self.tx.fetch(OPEN, jobs):
            held.setdefault(row["job"], []).append(Reservation(**row))
        return {
            job: Known(row["attempt"], (row["epoch"], row["seq"]), line.get(job), tuple(held.get(job, ())))
            for job, row in heard.items()
        }

    async def heard(self, records: Sequence[JobRecord], now: datetime) -> None:
        """These versions are the newest. An attempt that has ended leaves its row behind as a tombstone."""
        if records:
            await self.tx.execute(
                SET_ATTEMPTS,
                [record.id for record in records],
                [record.attempt for record in records],
                [record.epoch for record in records],
                [record.seq for record in records],
                [now if record.deleted or not _moving(record) else None for record in records],
            )

    async def end(self, ends: Sequence[End], now: datetime) -> None:
        """Set the ends that are not set yet."""
        if ends:
            await self.tx.execute(
                END,
                [end.reservation.job for end in ends],
                [end.reservation.attempt for end in ends],
                [end.reservation.admission for end in ends],
                [end.gpus for end in ends],
                [end.slot for end in ends],
                now,
                [end.why for end in ends],
            )

    async def move(self, moves: Sequence[tuple[Reservation, str]]) -> None:
        """These reservations draw on another cluster than was thought."""
        if moves:
            await self.tx.execute(
                MOVE,
                [one.job for one, _ in moves],
                [one.attempt for one, _ in moves],
                [one.admission for one, _ in moves],
                [cluster for _, cluster in moves],
            )

    async def book(self, reservations: Sequence[Reservation]) -> set[str]:
        """Open these; the jobs for which that was done."""
        if not reservations:
            return set()
        rows = await self.tx.fetch(
            BOOK,
            [one.job for one in reservations],
            [one.attempt for one in reservations],
            [one.admission for one in reservations],
            [one.tenant for one in reservations],
            [one.cluster for one in reservations],
            [one.coretype for one in reservations],
            [one.gpus for one in reservations],
            [one.opened_at for one in reservations],
            [None if one.holds_gpus and one.gpus else one.opened_at for one in reservations],
            [None if one.holds_slot else one.opened_at for one in reservations],
        )
        return {row["job"] for row in rows}

    async def heads(self, heads: Sequence[Head], without: Sequence[str]) -> list[Waiting]:
        """Those in the line who may fit, locked."""
        if not heads:
            return []
        keys, gpus, most = zip(*heads, strict=True)
        return [waiting_of(row) for row in await self.tx.fetch(HEADS, keys, gpus, most, without)]

    async def aged(self, keys: Sequence[str], before: datetime, without: Sequence[str]) -> list[Waiting]:
        """The first at each of these places who stands in the line since `before` or longer, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(AGED, keys, before, without)] if keys else []

    async def cooled(self, now: datetime, limit: int) -> list[Waiting]:
        """Those whose cooldown is over, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(COOLED, now, limit)]

    async def mistold_by_place(self, keys: Sequence[str], kind: str, right: bool, limit: int) -> list[Waiting]:
        """Those at these places for whom it is not `right` to have been told `kind` (or not), locked."""
        if not keys:
            return []
        return [waiting_of(row) for row in await self.tx.fetch(MISTOLD_BY_PLACE, keys, kind, right, limit)]

    async def mistold_by_limit(self, tenant: str, gpus: int, kind: str, limit: int) -> list[Waiting]:
        """Those for whom asking more than `gpus` and having been told `kind` disagree, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(MISTOLD_BY_LIMIT, tenant, gpus, kind, limit)]

    async def places(self) -> list[str]:
        """Where in the line somebody stands."""
        return [row["key"] for row in await self.tx.fetch(PLACES)]

    async def numbers(self, count: int) -> list[int]:
        """So many new fact versions, rising."""
        return [row["nextval"] for row in await self.tx.fetch(NUMBERS, count)] if count else []

    async def stand(self, line: Sequence[Waiting]) -> None:
        """Write these places in the line; each has been told its gates."""
        if line:
            told = [_told(one) for one in line]
            await self.tx.execute(
                STAND,
                [one.job for one in line],
                [one.attempt for one in line],
                [one.tenant for one in line],
                [one.priority for one in line],
                [one.queued_at for one in line],
                [one.gpus for one in line],
                [one.coretype for one in line],
                [one.region for one in line],
                [None if one.hold is None else one.hold.model_dump(mode="json") for one in line],
                [one.upstream for one in line],
                [one.cooldown_until for one in line],
                [one.waits_for for one in line],
                [one.kind for one in told],
                [one.n for one in told],
                [one.at for one in told],
                [{"gates": [gate.model_dump(mode="json") for gate in one.gates]} for one in told],
            )

    async def leave(self, jobs: Sequence[str]) -> None:
        """These stand in the line no more."""
        if jobs:
            await self.tx.execute(LEAVE, jobs)

    async def set_pools(self, pools: Sequence[Pool]) -> None:
        """Newer reports replace older ones. An unreachable cluster keeps its last numbers and the time it went away."""
        columns: list[list[Any]] = [
            [getattr(pool, name) for pool in pools]
            for name in ("cluster", "coretype", "region", "gpus", "slots", "total_gpus", "at", "reachable")
        ]
        await self.tx.execute(SET_POOLS, *columns)


def waiting_of(row: Mapping[str, Any]) -> Waiting:
    """A row of the line."""
    fields = dict(row)
    gates = tuple(Gate.model_validate(gate) for gate in fields.pop("gates")["gates"])
    told = Told(fields.pop("told"), fields.pop("told_n"), fields.pop("told_at"), gates)
    hold = None if fields["hold"] is None else HoldMark.model_validate(fields["hold"])
    return Waiting(**{**fields, "hold": hold, "told": told})


def _told(one: Waiting) -> Told:
    assert one.told is not None, f"{one.job} stands in the line and was told nothing"
    return one.told


def _moving(record: JobRecord) -> bool:
    return record.state in ACTIVE or record.state is State.QUEUED
