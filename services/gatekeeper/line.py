"""The line: what waits, in which order, and on what."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.lifecycle.facts import Gate
from shared.lifecycle.record import HoldMark, JobRecord

EVENT: Final = "event"
"""Waits for news of the job itself: only its own next event can open the gate."""
TIME: Final = "time"
"""Waits for an instant that is known."""
CEILING: Final = "ceiling"
"""Waits for room under the limits of the whole deployment."""


def tenant_key(tenant: str) -> str:
    """Waits for room in the tenant's quota."""
    return f"tenant:{tenant}"


def pool_key(coretype: str, region: str | None) -> str:
    """Waits for room on a cluster that offers the coretype (in that region, where one was asked for)."""
    return f"pool:{coretype}/{region or '*'}"


def pool_keys(coretype: str, region: str | None) -> tuple[str, ...]:
    """The keys of everybody who may use a cluster of this coretype in this region."""
    anywhere = pool_key(coretype, None)
    return (anywhere,) if region is None else (anywhere, pool_key(coretype, region))


def tenant_of(key: str) -> str | None:
    """The tenant of a tenant's key, None for any other."""
    kind, _, tenant = key.partition(":")
    return tenant if kind == "tenant" else None


def pool_of(key: str) -> tuple[str, str | None] | None:
    """Coretype and region of a pool's key, None for any other."""
    kind, _, rest = key.partition(":")
    coretype, _, region = rest.rpartition("/")
    return (coretype, None if region == "*" else region) if kind == "pool" else None


@dataclass(frozen=True, slots=True)
class Told:
    """What was last reported of a waiting attempt: `kind` is the first gate and its reason's class."""

    kind: str
    n: int
    at: datetime
    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One attempt that waits, as its newest record has it."""

    job: str
    attempt: int
    tenant: str
    priority: int
    queued_at: datetime
    gpus: int
    coretype: str
    region: str | None = None
    hold: HoldMark | None = None
    upstream: str | None = None
    cooldown_until: datetime | None = None
    waits_for: str | None = None
    told: Told | None = None

    @classmethod
    def of(cls, record: JobRecord) -> "Waiting":
        """A QUEUED record's place in the line; nothing is told yet."""
        pipeline = record.pipeline
        return cls(
            job=record.id,
            attempt=record.attempt,
            tenant=record.tenant,
            priority=record.priority,
            queued_at=record.current.queued_at,
            gpus=record.resources.gpus,
            coretype=record.resources.coretype,
            region=record.resources.region,
            hold=record.hold,
            upstream=None if pipeline is None or pipeline.upstream_done else pipeline.step,
            cooldown_until=record.current.cooldown_until,
        )

    @property
    def place(self) -> tuple[int, datetime, str]:
        """Sorts the line: priority, then age; the id makes it total."""
        return (-self.priority, self.queued_at, self.job)

    @property
    def asks(self) -> tuple[object, ...]:
        """Everything that a gate looks at: where it is the same, the job need not be looked at again."""
        return (
            self.attempt,
            self.priority,
            self.gpus,
            self.coretype,
            self.region,
            self.hold,
            self.upstream,
            self.cooldown_until,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """Everything that it draws on when it is admitted."""
        return (CEILING, tenant_key(self.tenant), pool_key(self.coretype, self.region))
