"""What others may ask the gatekeeper: would it fit, where does it stand, and the quotas."""

from collections.abc import Sequence
from typing import Final

from services.gatekeeper import statements as sql
from services.gatekeeper.admission import Passed, Policy, lock_gates, pass_gates
from services.gatekeeper.gates import closed_gates, gates_of, limit_kind, never_fits
from services.gatekeeper.line import CEILING, tenant_key
from services.gatekeeper.room import ANY_GPUS, BATCH, EVERYBODY, Limits, Pool, Room, Use
from services.gatekeeper.store import Store, waiting_of
from shared.contracts.queries import (
    FitAnswer,
    FitAsked,
    PositionsAnswer,
    PositionsAsked,
    Quota,
    QuotaAnswer,
    QuotaAsked,
    QuotaSet,
)
from shared.contracts.subjects import is_tenant_name
from shared.runtime.clock import Clock
from shared.runtime.database import Database

LIMITS: Final = "SELECT tenant, slots, gpus FROM quotas WHERE tenant = ANY ($1)"
QUOTAS: Final = """
SELECT tenant, slots, gpus, changed_by, changed_at FROM quotas WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant
"""
SET_QUOTA: Final = """
INSERT INTO quotas (tenant, slots, gpus, changed_by, changed_at) VALUES ($1, $2, $3, $6, $7)
ON CONFLICT (tenant) DO UPDATE SET
    slots = CASE WHEN $4 THEN excluded.slots ELSE quotas.slots END,
    gpus = CASE WHEN $5 THEN excluded.gpus ELSE quotas.gpus END,
    changed_by = excluded.changed_by, changed_at = excluded.changed_at
RETURNING slots, gpus
"""
REMEMBER: Final = """
INSERT INTO quota_changes (tenant, slots, gpus, changed_by, changed_at) VALUES ($1, $2, $3, $4, $5)
"""
# The line of a coretype: whoever is held by a person, a step or a cooldown does not stand in it.
POSITIONS: Final = """
SELECT job, place FROM (
    SELECT job, row_number() OVER (PARTITION BY coretype ORDER BY priority DESC, queued_at, job) AS place
    FROM waiting WHERE waits_for NOT IN ('event', 'time')
) AS line WHERE job = ANY ($1)
"""
_ROUNDS: Final = 50


class Queries:
    """The rpc methods of the gatekeeper."""

    def __init__(self, db: Database, clock: Clock, policy: Policy) -> None:
        self._db = db
        self._clock = clock
        self._policy = policy

    async def fits(self, request: bytes) -> bytes:
        """FitAsked -> FitAnswer: could jobs of these resources ever pass?"""
        asked = FitAsked.model_validate_json(request)
        room = await self._room([asked.tenant], with_sums=False)
        why_not = tuple(never_fits(asked.tenant, one.gpus, one.coretype, one.region, room) for one in asked.resources)
        return FitAnswer(why_not=why_not).model_dump_json().encode()

    async def positions(self, request: bytes) -> bytes:
        """PositionsAsked -> PositionsAnswer: places in the line of each job's coretype, and its gates as of now."""
        asked = PositionsAsked.model_validate_json(request)
        places = {row["job"]: row["place"] for row in await self._db.fetch(POSITIONS, asked.jobs)}
        waiting = [waiting_of(row) for row in await self._db.fetch(sql.WAITING, asked.jobs)]
        room = await self._room([job.tenant for job in waiting])
        gates = {job.job: gates_of(closed) for job in waiting if (closed := closed_gates(job, room))}
        return PositionsAnswer(positions=places, gates=gates).model_dump_json().encode()

    async def quota_get(self, request: bytes) -> bytes:
        """QuotaAsked -> QuotaAnswer: limits and use of a tenant, or of all that have either; `*` is the deployment."""
        asked = QuotaAsked.model_validate_json(request)
        return (await self._quotas(asked.tenant)).model_dump_json().encode()

    async def quota_set(self, request: bytes) -> bytes:
        """QuotaSet -> QuotaAnswer: a raised limit lets in whoever fits now; a lowered one counts from the next on."""
        asked = QuotaSet.model_validate_json(request)
        if asked.tenant != EVERYBODY and not is_tenant_name(asked.tenant):
            raise ValueError(f"{asked.tenant!r} is no tenant's name: 1-40 of a-z, 0-9 and inner dashes (or * for all)")
        for name in asked.fields:
            limit = getattr(asked, name)
            if limit is not None and not 0 <= limit <= ANY_GPUS:
                raise ValueError(f"{name}: {limit} is no limit; give 0 to {ANY_GPUS}, or none to lift it")
        again = await self._set(asked)
        for _ in range(_ROUNDS):
            if not again:
                break
            again = await self._look(asked.tenant)
        return (await self._quotas(asked.tenant)).model_dump_json().encode()

    async def _set(self, asked: QuotaSet) -> bool:
        now = self._clock.now()
        slots, gpus = "slots" in asked.fields, "gpus" in asked.fields
        new = self._policy.default if asked.tenant != EVERYBODY else Limits()
        async with self._db.transaction() as tx:
            await lock_gates(Store(tx), [asked.tenant])
            row = await tx.fetchrow(
                SET_QUOTA,
                asked.tenant,
                asked.slots if slots else new.slots,
                asked.gpus if gpus else new.gpus,
                slots,
                gpus,
                asked.actor,
                now,
            )
            assert row is not None, "it was inserted or updated"
            await tx.execute(REMEMBER, asked.tenant, row["slots"], row["gpus"], asked.actor, now)
        return True

    async def _look(self, tenant: str) -> bool:
        """Let in who fits, and tell those who can never fit now, or could not before. Whether there may be more."""
        async with self._db.transaction() as tx:
            store = Store(tx)
            gates = await lock_gates(store, [tenant])
            limit = gates.limits[tenant].gpus
            most = ANY_GPUS if limit is None else limit
            due = await store.mistold_by_limit(tenant, most, limit_kind(tenant), BATCH)
            key = CEILING if tenant == EVERYBODY else tenant_key(tenant)
            passed: Passed = await pass_gates(store, gates, due, [key], self._policy, self._clock.now())
        return bool(passed.again) or (len(due) == BATCH and passed.told > 0)

    async def _quotas(self, tenant: str | None) -> QuotaAnswer:
        rows = {row["tenant"]: dict(row) for row in await self._db.fetch(QUOTAS, tenant)}
        room = await self._room([])
        names = {*rows, *room.by_tenant} if tenant is None else {tenant}
        quotas = []
        for name in sorted(names):
            own = rows.get(name) or {
                "tenant": name,
                "slots": self._policy.default.slots,
                "gpus": self._policy.default.gpus,
            }
            used = room.used_by(name)
            quotas.append(Quota(**own, slots_used=used.slots, gpus_used=used.gpus))
        return QuotaAnswer(quotas=tuple(quotas))

    async def _room(self, tenants: Sequence[str], *, with_sums: bool = True) -> Room:
        """What is free, as a reader sees it."""
        pools = [Pool(**row) for row in await self._db.fetch(sql.POOLS)]
        limits = {
            row["tenant"]: Limits(row["slots"], row["gpus"])
            for row in await self._db.fetch(LIMITS, [EVERYBODY, *tenants])
        }
        uses = [Use(**row) for row in await self._db.fetch(sql.SUMS)] if with_sums else []
        policy = self._policy
        return Room.of(pools, limits, policy.default, uses, self._clock.now(), policy.silent_after, policy.restoring)
