"""On which cluster an attempt is watched."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add it: all of before is on this machine."""
    op.execute("ALTER TABLE watched ADD COLUMN cluster text NOT NULL DEFAULT 'local'")
