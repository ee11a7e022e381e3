"""The step before a job, whose outputs lie in its working directory."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Let a row name the job of the step before."""
    op.execute("ALTER TABLE staging ADD COLUMN after text")
