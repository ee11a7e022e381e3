"""The launch fence: one row per attempt."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_outbox

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the runtime's tables, the launches and the sequence of fact versions."""
    create_outbox(op)
    create_dead_letters(op)
    op.execute("CREATE SEQUENCE fact_versions")
    op.execute("""
        CREATE TABLE launches (
            job text NOT NULL,
            attempt integer NOT NULL,
            tenant text NOT NULL,
            epoch integer NOT NULL,
            seq bigint NOT NULL,
            state text NOT NULL,
            submission text NOT NULL,
            directory text,
            spec_digest text NOT NULL,
            gpus integer NOT NULL,
            time_limit_seconds integer,
            owner text,
            token text,
            deadline timestamptz,
            asked boolean NOT NULL,
            tries integer NOT NULL,
            next_at timestamptz NOT NULL,
            waits_for text,
            grace_seconds double precision,
            stop_asked_at timestamptz,
            stop_asked_grace double precision,
            accepted_n bigint,
            accepted_at timestamptz,
            begun_at timestamptz,
            refused_reason text,
            refused_message text,
            sealed_n bigint,
            sealed_at timestamptz,
            ran boolean,
            witnessed boolean NOT NULL,
            released boolean NOT NULL,
            answers integer NOT NULL,
            PRIMARY KEY (job, attempt),
            CONSTRAINT launches_state
                CHECK (state IN ('intent', 'submitting', 'submitted', 'revoking', 'sealed')),
            CONSTRAINT launches_sealed_once CHECK ((state = 'sealed') = (sealed_n IS NOT NULL)),
            CONSTRAINT launches_leased
                CHECK (state <> 'submitting' OR (token IS NOT NULL AND deadline IS NOT NULL))
        )
    """)
    op.execute("CREATE INDEX launches_open ON launches (job) WHERE state <> 'sealed'")
    op.execute("CREATE INDEX launches_to_launch ON launches (next_at) WHERE state = 'intent'")
    op.execute("CREATE INDEX launches_submitting ON launches (deadline) WHERE state = 'submitting'")
    op.execute("CREATE INDEX launches_to_end ON launches (next_at) WHERE state = 'revoking'")
    op.execute("""
        CREATE INDEX launches_to_release ON launches (next_at) WHERE state = 'sealed' AND witnessed AND NOT released
    """)
