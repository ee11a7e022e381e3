"""The tables that every service has, for its metadata: `tables.py` of a service declares the others.

A service gives its models a base of their own, so that the metadata of two services never mix in one process:

    class Base(SQLModel, registry=registry()): ...
    class Thing(Base, table=True): ...
    metadata = with_runtime_tables(Base.metadata)

Only migrations and their test import such a module: SQLAlchemy costs 30 MB, and the running service speaks asyncpg.
"""

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
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB


def with_runtime_tables(metadata: MetaData) -> MetaData:
    """The same metadata, with the tables that the helpers of `shared.runtime.migrate` make."""
    now = text("now()")
    Table(
        "outbox",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("key", Text, nullable=False),
        Column("subject", Text, nullable=False),
        Column("msg_id", Text, nullable=False),
        Column("headers", JSONB, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
        Column("sent_at", DateTime(timezone=True)),
        Column("stream_seq", BigInteger),
        Index("outbox_unsent", "id", postgresql_where=text("sent_at IS NULL")),
        Index("outbox_sent", "sent_at", postgresql_where=text("sent_at IS NOT NULL")),
    )
    Table(
        "dead_letters",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("consumer", Text, nullable=False),
        Column("stream", Text, nullable=False),
        Column("stream_seq", BigInteger, nullable=False),
        Column("msg_id", Text, nullable=False),
        Column("subject", Text, nullable=False),
        Column("headers", JSONB, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("error", Text, nullable=False),
        Column("deliveries", Integer, nullable=False),
        Column("parked_at", DateTime(timezone=True), nullable=False, server_default=now),
        Column("retried_at", DateTime(timezone=True)),
        Index(
            "dead_letters_once",
            "consumer",
            "stream_seq",
            "msg_id",
            unique=True,
            postgresql_where=text("retried_at IS NULL"),
        ),
    )
    Table(
        "leases",
        metadata,
        Column("name", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        Column("epoch", BigInteger, nullable=False),
        Column("until", DateTime(timezone=True), nullable=False),
    )
    Table(
        "relayed",
        metadata,
        Column("stream", Text, primary_key=True),
        Column("subject", Text, primary_key=True),
        Column("last_seq", BigInteger, nullable=False),
    )
    Table(
        "standing",
        metadata,
        Column(
            "one", Boolean, CheckConstraint("one", name="standing_one"), primary_key=True, server_default=text("true")
        ),
        Column("epoch", Integer, nullable=False, server_default=text("1")),
        Column("restoring", Boolean, nullable=False, server_default=text("false")),
        Column("backup_at", DateTime(timezone=True)),
        Column("restored_at", DateTime(timezone=True)),
    )
    return metadata
