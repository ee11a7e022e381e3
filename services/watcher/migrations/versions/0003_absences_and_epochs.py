"""How long what should be there was absent, and in which epoch each fact was told."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add both with defaults, so that the version before this one goes on writing."""
    op.execute("ALTER TABLE watched ADD COLUMN absent_ms bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE sightings ADD COLUMN epoch integer NOT NULL DEFAULT 1")
