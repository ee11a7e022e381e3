"""Deleting jobs: what nobody names any more is found without reading everything, and removed for certain."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Let a snapshot's blob have a name of its own, keep a list of blobs to remove, and what a pipeline has lost."""
    op.execute("ALTER TABLE snapshots ADD COLUMN key text")
    op.execute("""
        CREATE TABLE removals (
            key text PRIMARY KEY,
            due_at timestamptz NOT NULL,
            taken boolean NOT NULL
        )
    """)
    op.execute("CREATE INDEX removals_due ON removals (due_at)")
    op.execute("ALTER TABLE pipelines ADD COLUMN gone jsonb NOT NULL DEFAULT '[]'")
    op.execute("CREATE INDEX jobs_by_spec ON jobs (tenant, spec_digest)")
    op.execute("CREATE INDEX specs_by_snapshot ON specs (tenant, (spec ->> 'snapshot'))")
