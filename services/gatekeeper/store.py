"""What the gatekeeper reads and writes, set-based and guarded, inside one transaction that the caller opened.

Locks are taken in one order: the gates (ceiling first, then tenants by name, then pools), the attempts by job, then the
line. Everything that is read to decide is read in a statement after the one that took the lock: a statement that waited
for a lock still sees the other tables as they were before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from services.gatekeeper import statements as sql
from services.gatekeeper.domain import End, Known, Reservation
from services.gatekeeper.glance import Glance
from services.gatekeeper.line import Told, Waiting
from services.gatekeeper.room import Head, Limits, Pool, Use
from shared.lifecycle.facts import Gate
from shared.lifecycle.record import HoldMark, JobRecord
from shared.lifecycle.states import ACTIVE, State
from shared.runtime.database import Database, Tx


async def unmoved_jobs(db: Database, seen: Sequence[Glance]) -> set[str]:
    """Of jobs whose attempts hold all they were given, those for which nothing is to be done."""
    if not seen:
        return set()
    columns = zip(*((one.job, one.attempt, one.admission, one.cluster) for one in seen), strict=True)
    return {row["job"] for row in await db.fetch(sql.UNMOVED, *columns)}


class Store:
    """The slice inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    async def lock_quotas(self, tenants: Iterable[str]) -> dict[str, Limits]:
        """The rows of these tenants, locked in the order of their names; call it with the ceiling first."""
        rows = await self.tx.fetch(sql.LOCK_QUOTAS, sorted(set(tenants)))
        return {row["tenant"]: Limits(row["slots"], row["gpus"]) for row in rows}

    async def lock_pools(self) -> list[Pool]:
        """What clusters offer; reports wait until the decision is made."""
        return [Pool(**row) for row in await self.tx.fetch(sql.LOCK_POOLS)]

    async def sums(self) -> list[Use]:
        """What open reservations hold."""
        return [Use(**row) for row in await self.tx.fetch(sql.SUMS)]

    async def known(self, records: Mapping[str, JobRecord]) -> dict[str, Known]:
        """Lock the rows of these jobs, making those that are new, then read all that is known of them."""
        jobs = sorted(records)
        await self.tx.execute(sql.MAKE_ATTEMPTS, jobs, [records[job].tenant for job in jobs])
        heard = {row["job"]: row for row in await self.tx.fetch(sql.LOCK_ATTEMPTS, jobs)}
        line = {row["job"]: waiting_of(row) for row in await self.tx.fetch(sql.WAITING, jobs)}
        held: dict[str, list[Reservation]] = {}
        for row in await self.tx.fetch(sql.OPEN, jobs):
            held.setdefault(row["job"], []).append(Reservation(**row))
        return {
            job: Known(row["attempt"], (row["epoch"], row["seq"]), line.get(job), tuple(held.get(job, ())))
            for job, row in heard.items()
        }

    async def heard(self, records: Sequence[JobRecord], now: datetime) -> None:
        """These versions are the newest. An attempt that has ended leaves its row behind as a tombstone."""
        if records:
            await self.tx.execute(
                sql.SET_ATTEMPTS,
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
                sql.END,
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
                sql.MOVE,
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
            sql.BOOK,
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
        return [waiting_of(row) for row in await self.tx.fetch(sql.HEADS, keys, gpus, most, without)]

    async def aged(self, keys: Sequence[str], before: datetime, without: Sequence[str]) -> list[Waiting]:
        """The first at each of these places who stands in the line since `before` or longer, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(sql.AGED, keys, before, without)] if keys else []

    async def cooled(self, now: datetime, limit: int) -> list[Waiting]:
        """Those whose cooldown is over, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(sql.COOLED, now, limit)]

    async def told(self, keys: Sequence[str], kind: str, limit: int) -> list[Waiting]:
        """Those at these places who were told a reason of this kind, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(sql.TOLD, keys, kind, limit)] if keys else []

    async def told_otherwise(self, keys: Sequence[str], kind: str, limit: int) -> list[Waiting]:
        """Those at these places who were told a reason of any other kind, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(sql.TOLD_OTHERWISE, keys, kind, limit)] if keys else []

    async def mistold_by_limit(self, tenant: str, gpus: int, kind: str, limit: int) -> list[Waiting]:
        """Those for whom asking more than `gpus` and having been told `kind` disagree, locked."""
        return [waiting_of(row) for row in await self.tx.fetch(sql.MISTOLD_BY_LIMIT, tenant, gpus, kind, limit)]

    async def places(self) -> list[str]:
        """Where in the line somebody stands."""
        return [row["key"] for row in await self.tx.fetch(sql.PLACES)]

    async def numbers(self, count: int) -> list[int]:
        """So many new fact versions, rising."""
        return [row["nextval"] for row in await self.tx.fetch(sql.NUMBERS, count)] if count else []

    async def stand(self, line: Sequence[Waiting]) -> None:
        """Write these places in the line; each has been told its gates."""
        if line:
            told = [_told(one) for one in line]
            await self.tx.execute(
                sql.STAND,
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
            await self.tx.execute(sql.LEAVE, jobs)

    async def set_pools(self, pools: Sequence[Pool]) -> None:
        """Newer reports replace older ones. An unreachable cluster keeps its last numbers and the time it went away."""
        columns: list[list[Any]] = [
            [getattr(pool, name) for pool in pools]
            for name in ("cluster", "coretype", "region", "gpus", "slots", "total_gpus", "at", "reachable")
        ]
        await self.tx.execute(sql.SET_POOLS, *columns)


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
