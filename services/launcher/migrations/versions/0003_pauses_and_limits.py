"""How an attempt was asked to end, so that it is asked with the same again, and what its command is told of itself."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns, with what rows of before meant by having none: a stop by SIGTERM, of a batch job's first run."""
    op.execute("""
        ALTER TABLE launches
            ADD COLUMN stop_signal integer,
            ADD COLUMN pausing boolean NOT NULL DEFAULT false,
            ADD COLUMN resumed boolean NOT NULL DEFAULT false,
            ADD COLUMN workstation boolean NOT NULL DEFAULT false
    """)
