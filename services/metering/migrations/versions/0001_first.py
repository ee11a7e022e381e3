"""Segments, and the two tables of the runtime."""

from alembic import op

from shared.runtime.migrate import create_dead_letters, create_outbox

revision = "0001"
down_revision = None


def upgrade() -> None:
    create_outbox(op)
    create_dead_letters(op)
    op.execute("""
        CREATE TABLE segments (
            job text NOT NULL,
            attempt integer NOT NULL,
            submission text NOT NULL,
            restart integer NOT NULL,
            tenant text NOT NULL,
            "user" text NOT NULL,
            project text NOT NULL,
            coretype text NOT NULL,
            gpus integer NOT NULL,
            epoch integer NOT NULL,
            seq bigint NOT NULL,
            started_at timestamptz,
            ended_at timestamptz,
            ended text,
            suspended_ms bigint NOT NULL DEFAULT 0,
            gpu_milliseconds bigint,
            estimated boolean NOT NULL DEFAULT false,
            billable boolean NOT NULL DEFAULT true,
            revision integer NOT NULL DEFAULT 0,
            line jsonb,
            PRIMARY KEY (job, attempt, submission, restart)
        )
    """)
    op.execute("CREATE INDEX segments_tenant ON segments (tenant)")
