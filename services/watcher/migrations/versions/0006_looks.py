"""What the next observer of a Slurm cluster has to know of the looks of the one before."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add it, empty: nothing is known of the time before."""
    op.execute("CREATE TABLE looks (cluster text PRIMARY KEY, looked_at timestamptz NOT NULL, blind jsonb NOT NULL)")
