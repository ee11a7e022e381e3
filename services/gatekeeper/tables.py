"""The schema of the gatekeeper as metadata: the migrations make it, and a test holds the two together.

Not imported by the running service (SQLAlchemy costs 30 MB): `store.py` and `queries.py` speak SQL to asyncpg.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Identity, Index, Integer, Sequence, Text, desc, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables


class Base(SQLModel, registry=registry()):
    """Metadata of this service only."""


def _text(*, key: bool = False, null: bool = False) -> Any:
    return Field(sa_column=Column(Text, primary_key=key, nullable=null))


def _number(*, key: bool = False, null: bool = False) -> Any:
    return Field(sa_column=Column(Integer, primary_key=key, nullable=null, autoincrement=False))


def _big(*, key: bool = False) -> Any:
    return Field(sa_column=Column(BigInteger, primary_key=key, nullable=False, autoincrement=False))


def _time(*, null: bool = False) -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=null))


class Attempt(Base, table=True):
    """The newest attempt of each job that was heard of, and the version of its record: the inbox. Once it has ended the
    row is a tombstone, so that a late event brings nothing back."""

    __tablename__ = "attempts"
    __table_args__ = (Index("attempts_ended", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),)
    job: str = _text(key=True)
    tenant: str = _text()
    attempt: int = _number()
    epoch: int = _number()
    seq: int = _big()
    ended_at: datetime | None = _time(null=True)


class Waiting(Base, table=True):
    """The line. `waits_for` is the place where the job stands; `told…` and `gates` are what was last reported of it."""

    __tablename__ = "waiting"
    __table_args__ = (
        Index("waiting_line", "waits_for", desc("priority"), "queued_at", "job", postgresql_include=["gpus"]),
        Index("waiting_told", "waits_for", "told"),
        Index("waiting_tenant", "tenant", "gpus"),
        Index("waiting_cooldown", "cooldown_until", postgresql_where=text("waits_for = 'time'")),
    )
    job: str = _text(key=True)
    attempt: int = _number()
    tenant: str = _text()
    priority: int = _number()
    queued_at: datetime = _time()
    gpus: int = _number()
    coretype: str = _text()
    region: str | None = _text(null=True)
    hold: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    upstream: str | None = _text(null=True)
    cooldown_until: datetime | None = _time(null=True)
    waits_for: str = _text()
    told: str = _text()
    told_n: int = _big()
    told_at: datetime = _time()
    gates: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))


class Reservation(Base, table=True):
    """What an admission booked. Use is the sum over rows whose ends are not set; each end is set once."""

    __tablename__ = "reservations"
    __table_args__ = (
        Index(
            "reservations_open",
            "tenant",
            "cluster",
            "coretype",
            postgresql_where=text("gpus_ended_at IS NULL OR slot_ended_at IS NULL"),
        ),
        Index("reservations_one_slot", "job", unique=True, postgresql_where=text("slot_ended_at IS NULL")),
        Index("reservations_ended", "slot_ended_at", postgresql_where=text("slot_ended_at IS NOT NULL")),
    )
    job: str = _text(key=True)
    attempt: int = _number(key=True)
    admission: int = _big(key=True)
    tenant: str = _text()
    cluster: str = _text()
    coretype: str = _text()
    gpus: int = _number()
    opened_at: datetime = _time()
    gpus_ended_at: datetime | None = _time(null=True)
    slot_ended_at: datetime | None = _time(null=True)
    ended_why: str | None = _text(null=True)


class Quota(Base, table=True):
    """Limits of a tenant; the row `*` is the deployment's ceiling, and the lock that makes admissions take turns."""

    __tablename__ = "quotas"
    tenant: str = _text(key=True)
    slots: int | None = _number(null=True)
    gpus: int | None = _number(null=True)
    changed_by: str | None = _text(null=True)
    changed_at: datetime | None = _time(null=True)


class QuotaChange(Base, table=True):
    """Who set which limits when: only added to."""

    __tablename__ = "quota_changes"
    id: int = Field(sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    tenant: str = _text()
    slots: int | None = _number(null=True)
    gpus: int | None = _number(null=True)
    changed_by: str = _text()
    changed_at: datetime = _time()


class Pool(Base, table=True):
    """What a cluster offers of a coretype, as it last reported."""

    __tablename__ = "pools"
    cluster: str = _text(key=True)
    coretype: str = _text(key=True)
    region: str | None = _text(null=True)
    gpus: int = _number()
    slots: int = _number()
    total_gpus: int | None = _number(null=True)
    at: datetime = _time()
    reachable: bool = Field(sa_column=Column(Boolean, nullable=False))


metadata = with_runtime_tables(Base.metadata)
Sequence("fact_versions", metadata=metadata)
