"""Tenants, tokens, the job record, its event log, and what stands beside them."""

from alembic import op

from shared.runtime.migrate import create_dead_letters

revision = "0001"
down_revision = None

_TABLES = (
    """
    CREATE TABLE tenants (
        name text PRIMARY KEY,
        position bigint NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE tokens (
        id text PRIMARY KEY,
        hash bytea NOT NULL,
        tenant text NOT NULL,
        user_name text NOT NULL,
        role text NOT NULL,
        name text,
        created_at timestamptz NOT NULL DEFAULT now(),
        revoked_at timestamptz
    )
    """,
    "CREATE UNIQUE INDEX tokens_hash ON tokens (hash)",
    """
    CREATE TABLE jobs (
        id text PRIMARY KEY,
        tenant text NOT NULL,
        state text NOT NULL,
        name text NOT NULL,
        spec_digest text NOT NULL,
        epoch integer NOT NULL,
        seq integer NOT NULL,
        record jsonb NOT NULL,
        submitted_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL
    ) WITH (fillfactor = 70)
    """,
    "CREATE INDEX jobs_of_tenant ON jobs (tenant, id DESC)",
    "CREATE INDEX jobs_by_state ON jobs (tenant, state, id DESC)",
    "CREATE INDEX jobs_by_name ON jobs (tenant, name, id DESC)",
    "CREATE INDEX jobs_open ON jobs (id) WHERE state IN ('QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING')",
    """
    CREATE TABLE specs (
        tenant text NOT NULL,
        digest text NOT NULL,
        spec jsonb NOT NULL,
        PRIMARY KEY (tenant, digest)
    )
    """,
    """
    CREATE TABLE events (
        job text NOT NULL,
        epoch integer NOT NULL,
        seq integer NOT NULL,
        id bigint GENERATED ALWAYS AS IDENTITY,
        tenant text NOT NULL,
        position bigint NOT NULL,
        type text NOT NULL,
        at timestamptz NOT NULL,
        headers jsonb NOT NULL,
        body bytea NOT NULL,
        inputs jsonb NOT NULL,
        sent_at timestamptz,
        PRIMARY KEY (job, epoch, seq)
    ) WITH (fillfactor = 90)
    """,
    "CREATE UNIQUE INDEX events_in_tenant ON events (tenant, position)",
    "CREATE INDEX events_unsent ON events (id) WHERE sent_at IS NULL",
    """
    CREATE TABLE idempotency (
        tenant text NOT NULL,
        key text NOT NULL,
        digest bytea NOT NULL,
        response text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (tenant, key)
    )
    """,
    "CREATE INDEX idempotency_age ON idempotency (created_at)",
    """
    CREATE TABLE orphans (
        job text NOT NULL,
        fact text NOT NULL,
        tenant text NOT NULL,
        epoch integer NOT NULL,
        n bigint NOT NULL,
        subject text NOT NULL,
        body bytea NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (job, fact)
    )
    """,
    "CREATE INDEX orphans_age ON orphans (at)",
    """
    CREATE TABLE tombstones (
        job text PRIMARY KEY,
        tenant text NOT NULL,
        deleted_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE snapshots (
        tenant text NOT NULL,
        digest text NOT NULL,
        size_bytes bigint NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (tenant, digest)
    )
    """,
)


def upgrade() -> None:
    """Make the tables. The event log is the outbox, so there is no table of that name."""
    for statement in _TABLES:
        op.execute(statement)
    create_dead_letters(op)
