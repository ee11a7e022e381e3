"""On which cluster an attempt is launched, and what that calls it."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns: all of before is on this machine."""
    op.execute("""
        ALTER TABLE launches
            ADD COLUMN cluster text NOT NULL DEFAULT 'local',
            ADD COLUMN ref text
    """)
