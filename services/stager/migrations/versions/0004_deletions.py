"""Jobs that were deleted and of which something is left to be removed."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table, with the jobs that are marked as deleted already."""
    op.execute("""
        CREATE TABLE deletions (
            job text PRIMARY KEY,
            tenant text NOT NULL,
            deleted_at timestamptz NOT NULL DEFAULT now(),
            due_at timestamptz NOT NULL DEFAULT now(),
            cleared_at timestamptz
        )
    """)
    op.execute("CREATE INDEX deletions_due ON deletions (due_at)")
    op.execute("""
        INSERT INTO deletions (job, tenant, deleted_at)
        SELECT job, min(tenant), min(deleted_at) FROM staging WHERE deleted_at IS NOT NULL GROUP BY job
    """)
