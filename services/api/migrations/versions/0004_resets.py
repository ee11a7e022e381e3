"""Telling open jobs again: how far that has come."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table, which holds one row while jobs are told again, and let the index find paused ones too."""
    op.execute("""
        CREATE TABLE resets (
            one boolean PRIMARY KEY DEFAULT true CONSTRAINT resets_one CHECK (one),
            due timestamptz NOT NULL,
            after text NOT NULL DEFAULT ''
        )
    """)
    op.execute("DROP INDEX jobs_open")
    op.execute(
        "CREATE INDEX jobs_open ON jobs (id) WHERE state IN ('QUEUED', 'SUBMITTED', 'PENDING', 'RUNNING', 'PAUSED')"
    )
