"""Which events were sent lately, found without reading the log as a whole."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the index: a few pages, since events are sent in about the order in which they lie in the table.

    It leaves out what is not sent: the relay would look for that by it too, and slowly.
    """
    op.execute("CREATE INDEX events_sent ON events USING brin (sent_at) WHERE sent_at IS NOT NULL")
