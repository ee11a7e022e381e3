"""The staging fence: one row per attempt."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_outbox

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the runtime's tables, the staging rows and the sequence of fact versions."""
    create_outbox(op)
    create_dead_letters(op)
    op.execute("CREATE SEQUENCE fact_versions")
    op.execute("""
        CREATE TABLE staging (
            job text NOT NULL,
            attempt integer NOT NULL,
            tenant text NOT NULL,
            spec_digest text NOT NULL,
            epoch integer NOT NULL,
            seq bigint NOT NULL,
            stage text NOT NULL,
            succeeded boolean,
            owner text,
            lease_epoch integer NOT NULL DEFAULT 0,
            deadline timestamptz,
            tries integer NOT NULL DEFAULT 0,
            due_at timestamptz NOT NULL DEFAULT now(),
            directory text,
            manifest text,
            facts jsonb NOT NULL DEFAULT '[]',
            answers integer NOT NULL DEFAULT 0,
            deleted_at timestamptz,
            PRIMARY KEY (job, attempt),
            CONSTRAINT staging_stage CHECK (stage IN ('stage_in', 'staged', 'copy_back', 'sealed', 'over')),
            CONSTRAINT staging_leased
                CHECK ((owner IS NULL) = (deadline IS NULL) AND (owner IS NULL OR stage IN ('stage_in', 'copy_back'))),
            CONSTRAINT staging_published CHECK (stage NOT IN ('staged', 'copy_back') OR directory IS NOT NULL),
            CONSTRAINT staging_says_one_thing CHECK (NOT (
                facts @> '[{"kind": "staged"}]' AND facts @> '[{"kind": "staging_sealed", "staged": false}]'
            ))
        )
    """)
    op.execute("CREATE INDEX staging_due ON staging (stage, due_at) WHERE stage IN ('stage_in', 'copy_back')")
    op.execute("CREATE INDEX staging_open ON staging (due_at) WHERE stage = 'staged'")
