"""The launcher's slice, as its migrations make it."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Index, Sequence, Text, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables

_MOMENT = DateTime(timezone=True)


class Base(SQLModel, registry=registry()):
    """The launcher's own metadata."""


class Launches(Base, table=True):
    """One row per attempt that the launcher was ever asked about: the launch fence, and the inbox of its job's events.

    `(epoch, seq)` is the newest record seen. `token` and `deadline` are the lease of who asks the backend now. Where a
    fact was told, `*_n` is its version and `*_at` its time, so that it can be told again.
    """

    __tablename__ = "launches"
    __table_args__ = (
        CheckConstraint("state IN ('intent', 'submitting', 'submitted', 'revoking', 'sealed')", name="launches_state"),
        CheckConstraint("(state = 'sealed') = (sealed_n IS NOT NULL)", name="launches_sealed_once"),
        CheckConstraint(
            "state <> 'submitting' OR (token IS NOT NULL AND deadline IS NOT NULL)", name="launches_leased"
        ),
        Index("launches_open", "job", postgresql_where=text("state <> 'sealed'")),
        Index("launches_to_launch", "next_at", postgresql_where=text("state = 'intent'")),
        Index("launches_submitting", "deadline", postgresql_where=text("state = 'submitting'")),
        Index("launches_to_end", "next_at", postgresql_where=text("state = 'revoking'")),
        Index(
            "launches_to_release", "next_at", postgresql_where=text("state = 'sealed' AND witnessed AND NOT released")
        ),
    )

    job: str = Field(sa_column=Column(Text, primary_key=True))
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    tenant: str = Field(sa_column=Column(Text, nullable=False))
    epoch: int
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    state: str = Field(sa_column=Column(Text, nullable=False))
    submission: str = Field(sa_column=Column(Text, nullable=False))
    cluster: str = Field(sa_column=Column(Text, nullable=False, server_default=text("'local'")))
    ref: str | None = Field(sa_column=Column(Text))
    directory: str | None = Field(sa_column=Column(Text))
    spec_digest: str = Field(sa_column=Column(Text, nullable=False))
    gpus: int
    time_limit_seconds: int | None
    resumed: bool = Field(sa_column_kwargs={"server_default": text("false")})
    workstation: bool = Field(sa_column_kwargs={"server_default": text("false")})
    owner: str | None = Field(sa_column=Column(Text))
    token: str | None = Field(sa_column=Column(Text))
    deadline: datetime | None = Field(sa_column=Column(_MOMENT))
    asked: bool
    tries: int
    next_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False))
    waits_for: str | None = Field(sa_column=Column(Text))
    grace_seconds: float | None
    stop_signal: int | None
    pausing: bool = Field(sa_column_kwargs={"server_default": text("false")})
    stop_asked_at: datetime | None = Field(sa_column=Column(_MOMENT))
    stop_asked_grace: float | None
    accepted_n: int | None = Field(sa_column=Column(BigInteger))
    accepted_at: datetime | None = Field(sa_column=Column(_MOMENT))
    begun_at: datetime | None = Field(sa_column=Column(_MOMENT))
    refused_reason: str | None = Field(sa_column=Column(Text))
    refused_message: str | None = Field(sa_column=Column(Text))
    sealed_n: int | None = Field(sa_column=Column(BigInteger))
    sealed_at: datetime | None = Field(sa_column=Column(_MOMENT))
    ran: bool | None
    witnessed: bool
    released: bool
    answers: int


fact_versions = Sequence("fact_versions", metadata=Base.metadata)
metadata = with_runtime_tables(Base.metadata)
