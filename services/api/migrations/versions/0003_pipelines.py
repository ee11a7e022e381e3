"""Pipelines: jobs that run one after the other."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table of pipelines, and let a job say whose step it is."""
    op.execute("""
        CREATE TABLE pipelines (
            id text PRIMARY KEY,
            tenant text NOT NULL,
            project text NOT NULL,
            user_name text NOT NULL,
            name text NOT NULL,
            submitted_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX pipelines_of_tenant ON pipelines (tenant, id DESC)")
    op.execute("ALTER TABLE jobs ADD COLUMN pipeline text")
    op.execute("CREATE INDEX jobs_of_pipeline ON jobs (pipeline, id) WHERE pipeline IS NOT NULL")
