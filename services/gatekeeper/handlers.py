"""What the gatekeeper does with each kind of message, and on its own every second.

Every handler is one transaction with a fixed number of statements, whatever the batch; all are safe to redeliver.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from services.gatekeeper import statements as sql
from services.gatekeeper.admission import (
    NOTHING_DONE,
    Locked,
    Passed,
    Policy,
    admitted_fact,
    held_fact,
    lock_gates,
    outgoing,
    pass_gates,
)
from services.gatekeeper.domain import Settled, freed_keys, settle
from services.gatekeeper.gates import UNKNOWN
from services.gatekeeper.glance import Glance
from services.gatekeeper.line import TIME, Waiting, pool_keys, pool_of, tenant_of
from services.gatekeeper.room import BATCH, Pool, Room
from services.gatekeeper.store import Store, unmoved_jobs
from shared.contracts.queries import Capacity
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE
from shared.runtime.clock import Clock
from shared.runtime.database import Database
from shared.runtime.messages import Delivery
from shared.runtime.outbox import Outgoing

KEEP: Final = timedelta(days=8)
"""Tombstones and ended reservations outlive the stream's messages (7 days), so that a late one finds them."""
_PURGE_ROWS: Final = 5000
_ROUNDS: Final = 50  # of one call: what is left then waits for the next tick


class Gatekeeper:
    """Holds what the handlers need; keeps no state of its own between messages."""

    def __init__(self, db: Database, clock: Clock, policy: Policy) -> None:
        self._db = db
        self._clock = clock
        self._policy = policy

    async def on_events(self, deliveries: Sequence[Delivery]) -> None:
        """Hold or admit a batch of jobs, and end reservations of those that let go. Keyed by job and attempt.

        An event of an attempt that runs under the reservation it has changes nothing, and nothing is written for it.
        """
        newest: dict[str, Glance] = {}
        for delivery in deliveries:
            glance = Glance.at(delivery.body, delivery.stream_seq)
            before = newest.get(glance.job)
            if before is None or before.version <= glance.version:
                newest[glance.job] = glance
        unmoved = await unmoved_jobs(self._db, [glance for glance in newest.values() if glance.quiet])
        heard = [glance for job, glance in newest.items() if job not in unmoved]
        if heard:
            records = {glance.job: glance.read() for glance in heard}
            await self.on_records(records, {glance.job: glance.question for glance in heard})

    async def on_records(self, records: Mapping[str, JobRecord], asked: Mapping[str, int]) -> None:
        """Compare the newest known records with the slice; `asked` numbers the question that each may be."""
        now = self._clock.now()
        passed = NOTHING_DONE
        async with self._db.transaction() as tx:
            store = Store(tx)
            gates = None
            if any(record.state not in ACTIVE or record.gpus_freed for record in records.values()):
                gates = await lock_gates(store, {record.tenant for record in records.values()})
            known = await store.known(records)
            settled = {job: settle(record, known[job], now) for job, record in records.items()}
            left = [job for job, one in settled.items() if one.wait is None and not one.stale and known[job].waiting]
            ends = [end for one in settled.values() for end in one.ends]
            await store.heard([records[job] for job, one in settled.items() if not one.stale and not one.question], now)
            await store.end(ends, now)
            await store.leave(left)
            await store.move([one.move for one in settled.values() if one.move is not None])
            await store.book([one.book for one in settled.values() if one.book is not None])
            await tx.enqueue([self._answer(one, asked[job]) for job, one in settled.items() if _asks(one)])
            due = [one.wait for one in settled.values() if one.evaluate and one.wait is not None]
            if gates is not None and (due or ends):
                freed = freed_keys(ends, gates.pools)
                passed = await pass_gates(store, gates, due, freed, self._policy, now)
        await self._pass_on(passed)

    def _answer(self, one: Settled, number: int) -> Outgoing:
        """Tell the latest fact of an attempt once more."""
        if one.admitted is not None:
            return outgoing(admitted_fact(one.admitted, self._policy), answer=number)
        assert one.wait is not None, "_asks says so"
        assert one.wait.told is not None, "who stands in the line was told why"
        return outgoing(held_fact(one.wait, one.wait.told, self._policy), answer=number)

    async def on_clusters(self, deliveries: Sequence[Delivery]) -> None:
        """Take over what clusters report, and let in whoever fits now."""
        newest: dict[tuple[str, str], Pool] = {}
        for delivery in deliveries:
            if delivery.subject.split(".")[3:4] != ["capacity"]:
                continue
            pool = _pool(Capacity.model_validate_json(delivery.body))
            if pool.key not in newest or newest[pool.key].at <= pool.at:
                newest[pool.key] = pool
        if not newest:
            return
        async with self._db.transaction() as tx:
            store = Store(tx)
            before = {pool.key: pool for pool in (await lock_gates(store, ())).pools}
            await store.set_pools(list(newest.values()))
            more = [pool for pool in newest.values() if _grew(before.get(pool.key), pool, self._policy.silent_after)]
        await self._pass_on(
            Passed(again=frozenset(key for pool in more for key in pool_keys(pool.coretype, pool.region)))
        )

    async def tick(self) -> None:
        """The safety net: cooldowns that are over, room that nobody noticed, reasons that are of another kind now."""
        if await self._db.fetchval("SELECT EXISTS (SELECT FROM waiting)"):
            await self._pass_on(Passed(again=frozenset({TIME})))

    async def purge(self) -> None:
        """Forget what ended longer ago than any message can come late."""
        before = self._clock.now() - KEEP
        await self._db.execute(sql.PURGE_ATTEMPTS, before, _PURGE_ROWS)
        await self._db.execute(sql.PURGE_RESERVATIONS, before, _PURGE_ROWS)

    async def _pass_on(self, passed: Passed) -> None:
        """Pass after pass, a transaction each, until nobody else fits at these places in the line."""
        for _ in range(_ROUNDS):
            if not passed.again:
                return
            async with self._db.transaction() as tx:
                passed = await self._round(Store(tx), passed.again)

    async def _round(self, store: Store, keys: Collection[str]) -> Passed:
        now = self._clock.now()
        gates = await lock_gates(store, ())
        due: list[Waiting] = []
        if TIME in keys:
            keys = await store.places()
            due = [*await store.cooled(now, BATCH), *await self._mistold(store, keys, gates.pools, now)]
        tenants = [tenant for key in keys if (tenant := tenant_of(key)) is not None]
        gates = Locked({**gates.limits, **await store.lock_quotas(tenants)}, gates.pools)
        return await pass_gates(store, gates, due, keys, self._policy, now)

    async def _mistold(
        self, store: Store, keys: Collection[str], pools: Sequence[Pool], now: datetime
    ) -> list[Waiting]:
        """Those who were told that their cluster is full and it fell silent, and the other way round."""
        room = Room.of(pools, {}, self._policy.default, (), now, self._policy.silent_after, self._policy.restoring)
        offers = {key: room.offers(*asked) for key in keys if (asked := pool_of(key)) is not None}
        unknown = [key for key, found in offers.items() if found and not any(map(room.known, found))]
        silent = unknown if self._policy.hears() or self._policy.restoring else []
        heard = [key for key, found in offers.items() if any(map(room.known, found))]
        return [
            *await store.told_otherwise(silent, UNKNOWN, BATCH),
            *await store.told(heard, UNKNOWN, BATCH),
        ]


def _asks(one: Settled) -> bool:
    return one.question and (one.admitted is not None or (one.wait is not None and not one.evaluate))


def _pool(report: Capacity) -> Pool:
    return Pool(
        cluster=report.cluster,
        coretype=report.coretype,
        region=report.region,
        gpus=report.gpus,
        slots=report.slots,
        total_gpus=(report.gpus if report.total_gpus is None else report.total_gpus) if report.reachable else None,
        at=report.at,
        reachable=report.reachable,
    )


def _grew(before: Pool | None, now: Pool, silent_after: timedelta) -> bool:
    """Whether somebody may fit who did not. What shrank is told when it is next looked at."""
    if before is None or not now.reachable:
        return before is None
    silent = not before.reachable or before.at < now.at - silent_after
    return silent or now.gpus > before.gpus or now.slots > before.slots
