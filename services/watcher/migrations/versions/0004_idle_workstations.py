"""After how long a workstation is suspended for being idle, and until when its user has put that off."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add both without a value, so that the version before this one goes on writing."""
    op.execute("ALTER TABLE watched ADD COLUMN idle_seconds integer")
    op.execute("ALTER TABLE watched ADD COLUMN snoozed_until timestamptz")
