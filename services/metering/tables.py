"""The schema of metering as metadata: the migrations make it, and a test holds the two together.

Not imported by the running service (SQLAlchemy costs 30 MB): `store.py` speaks SQL to asyncpg.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Index, Integer, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from shared.runtime.tables import with_runtime_tables


class Base(SQLModel, registry=registry()):
    """Metadata of this service only."""


def _text(*, key: bool = False, null: bool = False) -> Any:
    return Field(sa_column=Column(Text, primary_key=key, nullable=null))


def _number(*, key: bool = False, default: str | None = None) -> Any:
    server_default = None if default is None else text(default)
    return Field(
        sa_column=Column(Integer, primary_key=key, nullable=False, autoincrement=False, server_default=server_default)
    )


def _big(*, null: bool = False, default: str | None = None) -> Any:
    server_default = None if default is None else text(default)
    return Field(sa_column=Column(BigInteger, nullable=null, server_default=server_default))


def _flag(default: str) -> Any:
    return Field(sa_column=Column(Boolean, nullable=False, server_default=text(default)))


def _time() -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=True))


class Segment(Base, table=True):
    """One period of holding GPUs, never deleted. `(epoch, seq)` is the version of the record that it was read from;
    `line` is what stands in the ledger, `revision` its number."""

    __tablename__ = "segments"
    __table_args__ = (Index("segments_tenant", "tenant"),)
    job: str = _text(key=True)
    attempt: int = _number(key=True)
    submission: str = _text(key=True)
    restart: int = _number(key=True)
    tenant: str = _text()
    user: str = _text()
    project: str = _text()
    coretype: str = _text()
    gpus: int = _number()
    epoch: int = _number()
    seq: int = _big()
    started_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    ended: str | None = _text(null=True)
    suspended_ms: int = _big(default="0")
    gpu_milliseconds: int | None = _big(null=True)
    estimated: bool = _flag("false")
    billable: bool = _flag("true")
    revision: int = _number(default="0")
    line: dict[str, Any] | None = Field(sa_column=Column(JSONB))


metadata = with_runtime_tables(Base.metadata)
