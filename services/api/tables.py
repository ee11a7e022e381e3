"""The schema of `api` as metadata: the migrations make it, and a test holds the two together.

Not imported by the running service (SQLAlchemy costs 30 MB): `store.py` speaks SQL to asyncpg.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Text,
    desc,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables

OPEN = "'QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING', 'PAUSED'"
"""The states of jobs that have not ended, for SQL."""


class Base(SQLModel, registry=registry()):
    """Metadata of this service only."""


def _text(*, key: bool = False, null: bool = False) -> Any:
    return Field(sa_column=Column(Text, primary_key=key, nullable=null))


def _number(*, key: bool = False) -> Any:
    return Field(sa_column=Column(Integer, primary_key=key, nullable=False, autoincrement=False))


def _big(*, default: str | None = None) -> Any:
    return Field(sa_column=Column(BigInteger, nullable=False, server_default=default and text(default)))


def _time(*, now: bool = False, null: bool = False) -> Any:
    default = text("now()") if now else None
    return Field(sa_column=Column(DateTime(timezone=True), nullable=null, server_default=default))


def _json(*, null: bool = False) -> Any:
    return Field(sa_column=Column(JSONB, nullable=null))


def _bytes() -> Any:
    return Field(sa_column=Column(LargeBinary, nullable=False))


class Tenant(Base, table=True):
    """A tenant; `position` counts its events without a gap, in the order of their commits."""

    __tablename__ = "tenants"
    name: str = _text(key=True)
    position: int = _big(default="0")
    created_at: datetime = _time(now=True)


class Token(Base, table=True):
    """Who may come in. Only the sha256 of a token is kept."""

    __tablename__ = "tokens"
    __table_args__ = (Index("tokens_hash", "hash", unique=True),)
    id: str = _text(key=True)
    hash: bytes = _bytes()
    tenant: str = _text()
    user_name: str = _text()
    role: str = _text()
    name: str | None = _text(null=True)
    created_at: datetime = _time(now=True)
    revoked_at: datetime | None = _time(null=True)


class Visit(Base, table=True):
    """A ticket or a cookie to one workstation, from a token. Only its sha256 is kept."""

    __tablename__ = "visits"
    __table_args__ = (
        CheckConstraint("kind IN ('ticket', 'cookie')", name="visits_kind"),
        Index("visits_expiry", "expires_at"),
    )
    hash: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    kind: str = _text()
    token: str = _text()
    job: str = _text()
    expires_at: datetime = _time()


class Job(Base, table=True):
    """The record of a job as `advance` made it last."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("jobs_of_tenant", "tenant", desc("id")),
        Index("jobs_by_state", "tenant", "state", desc("id")),
        Index("jobs_by_name", "tenant", "name", desc("id")),
        Index("jobs_by_spec", "tenant", "spec_digest"),
        Index("jobs_open", "id", postgresql_where=text(f"state IN ({OPEN})")),
        Index("jobs_of_pipeline", "pipeline", "id", postgresql_where=text("pipeline IS NOT NULL")),
        Index("jobs_workstations", "tenant", desc("id"), postgresql_where=text("kind = 'workstation'")),
    )
    id: str = _text(key=True)
    tenant: str = _text()
    state: str = _text()
    name: str = _text()
    spec_digest: str = _text()
    epoch: int = _number()
    seq: int = _number()
    record: Any = _json()
    submitted_at: datetime = _time()
    updated_at: datetime = _time()
    pipeline: str | None = _text(null=True)
    kind: str = Field(sa_column=Column(Text, nullable=False, server_default=text("'batch'")))


class Pipeline(Base, table=True):
    """Jobs that run one after the other: its steps, whose order is that of their ids. `gone`: those that were deleted,
    as they were shown last."""

    __tablename__ = "pipelines"
    __table_args__ = (Index("pipelines_of_tenant", "tenant", desc("id")),)
    id: str = _text(key=True)
    tenant: str = _text()
    project: str = _text()
    user_name: str = _text()
    name: str = _text()
    submitted_at: datetime = _time()
    gone: Any = Field(sa_column=Column(JSONB, nullable=False, server_default=text("'[]'")))


class Spec(Base, table=True):
    """What was submitted, once per tenant and digest."""

    __tablename__ = "specs"
    __table_args__ = (Index("specs_by_snapshot", "tenant", text("(spec ->> 'snapshot')")),)
    tenant: str = _text(key=True)
    digest: str = _text(key=True)
    spec: Any = _json()


class Event(Base, table=True):
    """The log of a job: what was published, and the inputs that caused it. Outbox and source of the streams."""

    __tablename__ = "events"
    __table_args__ = (
        Index("events_in_tenant", "tenant", "position", unique=True),
        Index("events_unsent", "id", postgresql_where=text("sent_at IS NULL")),
        Index("events_sent", "sent_at", postgresql_using="brin", postgresql_where=text("sent_at IS NOT NULL")),
    )
    job: str = _text(key=True)
    epoch: int = _number(key=True)
    seq: int = _number(key=True)
    id: int = Field(sa_column=Column(BigInteger, Identity(always=True), nullable=False))
    tenant: str = _text()
    position: int = _big()
    type: str = _text()
    at: datetime = _time()
    headers: Any = _json()
    body: bytes = _bytes()
    inputs: Any = _json()
    sent_at: datetime | None = _time(null=True)
    stream_seq: int | None = Field(sa_column=Column(BigInteger))


class Idempotency(Base, table=True):
    """The answer that was given to an Idempotency-Key, for a day."""

    __tablename__ = "idempotency"
    __table_args__ = (Index("idempotency_age", "created_at"),)
    tenant: str = _text(key=True)
    key: str = _text(key=True)
    digest: bytes = _bytes()
    response: str = _text()
    created_at: datetime = _time(now=True)


class Orphan(Base, table=True):
    """A fact about a job that has no row here, the newest of its kind: applied if the row appears."""

    __tablename__ = "orphans"
    __table_args__ = (Index("orphans_age", "at"),)
    job: str = _text(key=True)
    fact: str = _text(key=True)
    tenant: str = _text()
    epoch: int = _number()
    n: int = _big()
    subject: str = _text()
    body: bytes = _bytes()
    at: datetime = _time(now=True)


class Tombstone(Base, table=True):
    """A job that was deleted: late facts about it are dropped. Or a pipeline of which every step was."""

    __tablename__ = "tombstones"
    job: str = _text(key=True)
    tenant: str = _text()
    deleted_at: datetime = _time(now=True)


class Resets(Base, table=True):
    """One row while open jobs are told again: those that have not changed since `due`, after this id."""

    __tablename__ = "resets"
    one: bool = Field(
        sa_column=Column(
            Boolean, CheckConstraint("one", name="resets_one"), primary_key=True, server_default=text("true")
        )
    )
    due: datetime = _time()
    after: str = Field(sa_column=Column(Text, nullable=False, server_default=text("''")))


class Snapshot(Base, table=True):
    """A working directory that is in the blob store, whole and verified, under the name `key`. `stored_at`: when it
    came, or was asked for last (to the hour)."""

    __tablename__ = "snapshots"
    tenant: str = _text(key=True)
    digest: str = _text(key=True)
    size_bytes: int = _big()
    stored_at: datetime = _time(now=True)
    key: str | None = _text(null=True)


class Removal(Base, table=True):
    """A blob that nobody may name: removed once it is due. One that is not `taken` may still be given to a snapshot."""

    __tablename__ = "removals"
    __table_args__ = (Index("removals_due", "due_at"),)
    key: str = _text(key=True)
    due_at: datetime = _time()
    taken: bool = Field(sa_column=Column(Boolean, nullable=False))


metadata = with_runtime_tables(Base.metadata)
metadata.remove(metadata.tables["outbox"])  # the event log is this service's outbox
