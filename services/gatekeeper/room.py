"""What is free: limits and pools, less what open reservations use. A pass books into its own copy as it admits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from services.gatekeeper.line import CEILING, pool_keys, pool_of, tenant_of

EVERYBODY: Final = "*"
"""The quota row of the whole deployment; no tenant can have this name."""
BATCH: Final = 500
"""The most that one pass takes from one place in the line."""
ANY_GPUS: Final = 2**31 - 1
"""No limit on GPUs: the most that a PostgreSQL integer holds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a tenant, or of the deployment. None: no limit."""

    slots: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """What a cluster offers of a coretype, less foreign use, as of `at`. `total_gpus` is the most it ever has, None
    where it could never be asked."""

    cluster: str
    coretype: str
    region: str | None
    gpus: int
    slots: int
    total_gpus: int | None
    at: datetime
    reachable: bool

    @property
    def key(self) -> tuple[str, str]:
        return (self.cluster, self.coretype)


@dataclass(slots=True)
class Used:
    """Sums over open reservations."""

    gpus: int = 0
    slots: int = 0

    def add(self, gpus: int, slots: int) -> None:
        self.gpus += gpus
        self.slots += slots


class Use(NamedTuple):
    """One row of sums: what a tenant's open reservations hold of a pool."""

    tenant: str
    cluster: str
    coretype: str
    gpus: int
    slots: int


class Head(NamedTuple):
    """What may be taken from one place in the line: at most `limit` jobs of at most `gpus` GPUs each."""

    key: str
    gpus: int
    limit: int


@dataclass
class Room:
    """All that the gates look at, at the instant `now`."""

    pools: Sequence[Pool]
    limits: dict[str, Limits]
    default: Limits
    now: datetime
    silent_after: timedelta
    restoring: bool = False
    """The database was restored and what runs was not seen yet: nobody knows what is free."""
    by_tenant: dict[str, Used] = field(default_factory=dict)
    by_pool: dict[tuple[str, str], Used] = field(default_factory=dict)
    everybody: Used = field(default_factory=Used)
    kept: dict[tuple[str, str], int] = field(default_factory=dict)
    """Pools whose free GPUs are kept for a job that needs so many: nobody behind it in the line gets any."""

    @classmethod
    def of(
        cls,
        pools: Sequence[Pool],
        limits: Mapping[str, Limits],
        default: Limits,
        uses: Iterable[Use],
        now: datetime,
        silent_after: timedelta,
        restoring: bool = False,
    ) -> "Room":
        """Add the sums up."""
        room = cls(pools, dict(limits), default, now, silent_after, restoring)
        for use in uses:
            room.book(use.tenant, use.cluster, use.coretype, use.gpus, use.slots)
        return room

    def book(self, tenant: str, cluster: str, coretype: str, gpus: int, slots: int = 1) -> None:
        """Take from what is free."""
        self.everybody.add(gpus, slots)
        self.by_tenant.setdefault(tenant, Used()).add(gpus, slots)
        self.by_pool.setdefault((cluster, coretype), Used()).add(gpus, slots)

    def limits_of(self, tenant: str) -> Limits:
        """A tenant's own, or the deployment's default for tenants; no limit for the deployment without a row."""
        return self.limits.get(tenant, Limits() if tenant == EVERYBODY else self.default)

    def used_by(self, tenant: str) -> Used:
        return self.everybody if tenant == EVERYBODY else self.by_tenant.get(tenant, Used())

    def offers(self, coretype: str, region: str | None) -> list[Pool]:
        """The pools of a coretype, whether they can be asked now or not."""
        return [pool for pool in self.pools if pool.coretype == coretype and region in (None, pool.region)]

    def most_gpus(self, coretype: str, region: str | None) -> int | None:
        """The most that one job could ever get; None where nobody knows."""
        totals = [pool.total_gpus for pool in self.offers(coretype, region)]
        sizes = [total for total in totals if total is not None]
        return max(sizes, default=None) if len(sizes) == len(totals) else None

    def known(self, pool: Pool) -> bool:
        """Whether what the pool reported still says something."""
        return not self.restoring and pool.reachable and pool.at >= self.now - self.silent_after

    def free_gpus(self, pool: Pool) -> int:
        return 0 if pool.key in self.kept else self.unkept_gpus(pool)

    def unkept_gpus(self, pool: Pool) -> int:
        """What is free, whether it is kept for somebody or not."""
        return max(0, pool.gpus - self.by_pool.get(pool.key, Used()).gpus)

    def free_slots(self, pool: Pool) -> int:
        return max(0, pool.slots - self.by_pool.get(pool.key, Used()).slots)

    def fitting(self, coretype: str, region: str | None, gpus: int) -> Pool | None:
        """The emptiest pool that takes a job of so many GPUs now."""
        fits = [
            pool
            for pool in self.offers(coretype, region)
            if self.known(pool) and self.free_slots(pool) > 0 and self.free_gpus(pool) >= gpus
        ]
        return max(fits, key=lambda pool: (self.free_gpus(pool), self.free_slots(pool), pool.cluster), default=None)

    def keep(self, coretype: str, region: str | None, gpus: int) -> None:
        """Keep what is free, on the emptiest pool that is large enough, for a job that waits for it."""
        fits = [pool for pool in self.offers(coretype, region) if self.known(pool) and pool.gpus >= gpus]
        pool = max(fits, key=lambda one: (self.free_gpus(one), one.cluster), default=None)
        if pool is not None:
            self.kept.setdefault(pool.key, gpus)

    def rivals(self, keys: Iterable[str]) -> list[str]:
        """The places in the line of all who may draw on the same pools as those at `keys`."""
        coretypes = {asked[0] for key in keys if (asked := pool_of(key)) is not None}
        regions = {(pool.coretype, pool.region) for pool in self.pools if pool.coretype in coretypes}
        return sorted({key for coretype, region in regions for key in pool_keys(coretype, region)})

    def heads(self, keys: Iterable[str]) -> list[Head]:
        """What could be admitted from these places in the line, as far as the place itself limits it."""
        found: list[Head] = []
        for key in frozenset(keys):
            if key == CEILING:
                found.append(self._quota_head(key, EVERYBODY))
            elif (tenant := tenant_of(key)) is not None:
                found.append(self._quota_head(key, tenant))
            elif (asked := pool_of(key)) is not None:
                found.append(self._pool_head(key, *asked))
        return sorted(head for head in found if head.limit > 0)

    def _quota_head(self, key: str, tenant: str) -> Head:
        limits, used = self.limits_of(tenant), self.used_by(tenant)
        slots = BATCH if limits.slots is None else limits.slots - used.slots
        gpus = ANY_GPUS if limits.gpus is None else max(0, limits.gpus - used.gpus)
        return Head(key, gpus, min(slots, BATCH))

    def _pool_head(self, key: str, coretype: str, region: str | None) -> Head:
        pools = [pool for pool in self.offers(coretype, region) if self.known(pool)]
        slots = sum(self.free_slots(pool) for pool in pools)
        gpus = max((self.free_gpus(pool) for pool in pools if self.free_slots(pool)), default=0)
        return Head(key, gpus, min(slots, BATCH))
