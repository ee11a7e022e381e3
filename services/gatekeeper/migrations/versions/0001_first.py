"""The line, reservations, quotas, pools, and the two tables of the runtime."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_outbox

revision = "0001"
down_revision = None


def upgrade() -> None:
    create_outbox(op)
    create_dead_letters(op)
    op.execute("CREATE SEQUENCE fact_versions AS bigint")
    op.execute("""
        CREATE TABLE attempts (
            job text PRIMARY KEY,
            tenant text NOT NULL,
            attempt integer NOT NULL,
            epoch integer NOT NULL,
            seq bigint NOT NULL,
            ended_at timestamptz
        )
    """)
    op.execute("CREATE INDEX attempts_ended ON attempts (ended_at) WHERE ended_at IS NOT NULL")
    op.execute("""
        CREATE TABLE waiting (
            job text PRIMARY KEY,
            attempt integer NOT NULL,
            tenant text NOT NULL,
            priority integer NOT NULL,
            queued_at timestamptz NOT NULL,
            gpus integer NOT NULL,
            coretype text NOT NULL,
            region text,
            hold jsonb,
            upstream text,
            cooldown_until timestamptz,
            waits_for text NOT NULL,
            told text NOT NULL,
            told_n bigint NOT NULL,
            told_at timestamptz NOT NULL,
            gates jsonb NOT NULL
        )
    """)
    op.execute("CREATE INDEX waiting_line ON waiting (waits_for, priority DESC, queued_at, job) INCLUDE (gpus)")
    op.execute("CREATE INDEX waiting_told ON waiting (waits_for, told)")
    op.execute("CREATE INDEX waiting_tenant ON waiting (tenant, gpus)")
    op.execute("CREATE INDEX waiting_cooldown ON waiting (cooldown_until) WHERE waits_for = 'time'")
    op.execute("""
        CREATE TABLE reservations (
            job text NOT NULL,
            attempt integer NOT NULL,
            admission bigint NOT NULL,
            tenant text NOT NULL,
            cluster text NOT NULL,
            coretype text NOT NULL,
            gpus integer NOT NULL CHECK (gpus >= 0),
            opened_at timestamptz NOT NULL,
            gpus_ended_at timestamptz,
            slot_ended_at timestamptz,
            ended_why text,
            PRIMARY KEY (job, attempt, admission)
        )
    """)
    op.execute("""
        CREATE INDEX reservations_open ON reservations (tenant, cluster, coretype)
        WHERE gpus_ended_at IS NULL OR slot_ended_at IS NULL
    """)
    op.execute("CREATE UNIQUE INDEX reservations_one_slot ON reservations (job) WHERE slot_ended_at IS NULL")
    op.execute("CREATE INDEX reservations_ended ON reservations (slot_ended_at) WHERE slot_ended_at IS NOT NULL")
    op.execute("""
        CREATE TABLE quotas (
            tenant text PRIMARY KEY,
            slots integer CHECK (slots >= 0),
            gpus integer CHECK (gpus >= 0),
            changed_by text,
            changed_at timestamptz
        )
    """)
    op.execute("INSERT INTO quotas (tenant) VALUES ('*')")
    op.execute("""
        CREATE TABLE quota_changes (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            slots integer,
            gpus integer,
            changed_by text NOT NULL,
            changed_at timestamptz NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE pools (
            cluster text NOT NULL,
            coretype text NOT NULL,
            region text,
            gpus integer NOT NULL,
            slots integer NOT NULL,
            total_gpus integer,
            at timestamptz NOT NULL,
            reachable boolean NOT NULL,
            PRIMARY KEY (cluster, coretype)
        )
    """)
