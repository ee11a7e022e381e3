"""Workstations: found without reading every job, and visited by a browser."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the column, which the code before this leaves at its default, and the table."""
    op.execute("ALTER TABLE jobs ADD COLUMN kind text NOT NULL DEFAULT 'batch'")
    op.execute("CREATE INDEX jobs_workstations ON jobs (tenant, id DESC) WHERE kind = 'workstation'")
    op.execute("""
        CREATE TABLE visits (
            hash bytea PRIMARY KEY,
            kind text NOT NULL CONSTRAINT visits_kind CHECK (kind IN ('ticket', 'cookie')),
            token text NOT NULL,
            job text NOT NULL,
            expires_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX visits_expiry ON visits (expires_at)")
