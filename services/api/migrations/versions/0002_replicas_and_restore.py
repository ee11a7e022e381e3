"""Leases of replicas, what the broker has acknowledged, and the epoch."""

from alembic import op

from shared.runtime.migrate import create_leases, create_relayed, create_standing

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the runtime's tables for several replicas, for a broker's lost store, and for a restored database."""
    create_leases(op)
    create_relayed(op, "events")
    create_standing(op)
