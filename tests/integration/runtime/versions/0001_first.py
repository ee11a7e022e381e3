"""What every service's first migration holds at least."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_leases, create_outbox, create_relayed, create_standing

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the runtime's tables."""
    create_outbox(op)
    create_dead_letters(op)
    create_leases(op)
    create_relayed(op)
    create_standing(op)
