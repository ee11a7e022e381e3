"""The stager's slice, as its migrations make it."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Index, Sequence, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables

_MOMENT = DateTime(timezone=True)
_NOW = text("now()")
_ZERO = {"server_default": text("0")}


class Base(SQLModel, registry=registry()):
    """The stager's own metadata."""


class Staging(Base, table=True):
    """One row per attempt: the staging fence, and the inbox of its job's events.

    `(epoch, seq)` is the newest record seen. `owner`, `lease_epoch` and `deadline` are the lease of who works on it
    now; `due_at` is when somebody may take it. `directory` is the published one, `manifest` the published outputs.
    `facts` are those that were told, so that they can be told again. `after` is the job of the pipeline's step before.
    """

    __tablename__ = "staging"
    __table_args__ = (
        CheckConstraint("stage IN ('stage_in', 'staged', 'copy_back', 'sealed', 'over')", name="staging_stage"),
        CheckConstraint(
            "(owner IS NULL) = (deadline IS NULL) AND (owner IS NULL OR stage IN ('stage_in', 'copy_back'))",
            name="staging_leased",
        ),
        CheckConstraint("stage NOT IN ('staged', 'copy_back') OR directory IS NOT NULL", name="staging_published"),
        CheckConstraint(
            'NOT (facts @> \'[{"kind": "staged"}]\' AND facts @> \'[{"kind": "staging_sealed", "staged": false}]\')',
            name="staging_says_one_thing",
        ),
        Index("staging_due", "stage", "due_at", postgresql_where=text("stage IN ('stage_in', 'copy_back')")),
        Index("staging_open", "due_at", postgresql_where=text("stage = 'staged'")),
    )

    job: str = Field(sa_column=Column(Text, primary_key=True))
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    tenant: str = Field(sa_column=Column(Text, nullable=False))
    spec_digest: str = Field(sa_column=Column(Text, nullable=False))
    epoch: int
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    stage: str = Field(sa_column=Column(Text, nullable=False))
    succeeded: bool | None
    owner: str | None = Field(sa_column=Column(Text))
    lease_epoch: int = Field(sa_column_kwargs=_ZERO)
    deadline: datetime | None = Field(sa_column=Column(_MOMENT))
    tries: int = Field(sa_column_kwargs=_ZERO)
    due_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False, server_default=_NOW))
    directory: str | None = Field(sa_column=Column(Text))
    manifest: str | None = Field(sa_column=Column(Text))
    facts: list[dict[str, Any]] = Field(sa_column=Column(JSONB, nullable=False, server_default=text("'[]'")))
    answers: int = Field(sa_column_kwargs=_ZERO)
    deleted_at: datetime | None = Field(sa_column=Column(_MOMENT))
    after: str | None = Field(sa_column=Column(Text))


class Deletion(Base, table=True):
    """A deleted job of which something is left: due for the next piece at `due_at`. From `cleared_at` on only what
    fences its attempts is left."""

    __tablename__ = "deletions"
    __table_args__ = (Index("deletions_due", "due_at"),)

    job: str = Field(sa_column=Column(Text, primary_key=True))
    tenant: str = Field(sa_column=Column(Text, nullable=False))
    deleted_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False, server_default=_NOW))
    due_at: datetime = Field(sa_column=Column(_MOMENT, nullable=False, server_default=_NOW))
    cleared_at: datetime | None = Field(sa_column=Column(_MOMENT))


fact_versions = Sequence("fact_versions", metadata=Base.metadata)
metadata = with_runtime_tables(Base.metadata)
