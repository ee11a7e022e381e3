"""What is watched, and what was told of it."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_outbox

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the runtime's tables, `watched`, `sightings` and the sequence of fact versions."""
    create_outbox(op)
    create_dead_letters(op)
    op.execute("CREATE SEQUENCE fact_versions")
    op.execute("""
        CREATE TABLE watched (
            job text NOT NULL,
            attempt integer NOT NULL,
            tenant text NOT NULL,
            epoch integer NOT NULL,
            seq bigint NOT NULL,
            submission text,
            accepted_at timestamptz NOT NULL,
            over boolean NOT NULL,
            last_seen_at timestamptz,
            answers integer NOT NULL,
            PRIMARY KEY (job, attempt)
        )
    """)
    op.execute("CREATE INDEX watched_open ON watched (job, attempt) WHERE NOT over")
    op.execute("""
        CREATE TABLE sightings (
            submission text NOT NULL,
            kind text NOT NULL,
            job text NOT NULL,
            attempt integer NOT NULL,
            n bigint NOT NULL,
            at timestamptz NOT NULL,
            fact jsonb NOT NULL,
            PRIMARY KEY (submission, kind)
        )
    """)
    op.execute("CREATE INDEX sightings_of_attempt ON sightings (job, attempt)")
