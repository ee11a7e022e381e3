"""The watcher's slice, as its migrations make it. Only migrations and their test import this."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, Sequence, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables

_MOMENT = DateTime(timezone=True)


class Base(SQLModel, registry=registry()):
    """The watcher's own metadata."""


class Watched(Base, table=True):
    """One row per attempt whose end the watcher owes: the inbox of its job's events, `(epoch, seq)` the newest seen.

    `absent_ms`: so long complete observations have shown nothing of it. `idle_seconds`: after so long without use it is
    suspended, not before `snoozed_until`; without a value never.
    """

    __tablename__ = "watched"
    __table_args__ = (Index("watched_open", "job", "attempt", postgresql_where=text("NOT over")),)

    job: str = Field(sa_column=Column(Text, primary_key=True))
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    tenant: str = Field(sa_column=Column(Text, nullable=False))
    cluster: str = Field(sa_column=Column(Text, nullable=False, server_default=text("'local'")))
    epoch: int
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    submission: str | None = Field(sa_column=Column(Text))
    accepted_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False))
    over: bool
    last_seen_at: datetime | None = Field(sa_column=Column(_MOMENT))
    answers: int
    absent_ms: int = Field(sa_column=Column(BigInteger, nullable=False, server_default=text("0")))
    idle_seconds: int | None = Field(sa_column=Column(Integer))
    snoozed_until: datetime | None = Field(sa_column=Column(_MOMENT))


class Sighting(Base, table=True):
    """The newest fact told of each kind about a submission: what is seen again unchanged in the same epoch is not told
    again."""

    __tablename__ = "sightings"
    __table_args__ = (Index("sightings_of_attempt", "job", "attempt"),)

    submission: str = Field(sa_column=Column(Text, primary_key=True))
    kind: str = Field(sa_column=Column(Text, primary_key=True))
    job: str = Field(sa_column=Column(Text, nullable=False))
    attempt: int
    n: int = Field(sa_column=Column(BigInteger, nullable=False))
    at: datetime = Field(sa_column=Column(_MOMENT, nullable=False))
    fact: Any = Field(sa_column=Column(JSONB, nullable=False))
    epoch: int = Field(sa_column=Column(Integer, nullable=False, server_default=text("1")))


class Look(Base, table=True):
    """When a cluster's controller was seen last; and when it was away, or nobody looked, in the last day."""

    __tablename__ = "looks"

    cluster: str = Field(sa_column=Column(Text, primary_key=True))
    looked_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False))
    blind: Any = Field(sa_column=Column(JSONB, nullable=False))


fact_versions = Sequence("fact_versions", metadata=Base.metadata)
metadata = with_runtime_tables(Base.metadata)
