"""Migrations of a service's schema: `python -m shared.runtime.migrate <service>`, forward only.

`services/<name>/migrations/versions/*.py` are Alembic revisions; there is no `env.py`: this module is the environment.
TIDEGATE_DATABASE_URL holds the owner's login. Runs of several replicas take turns.
"""

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from shared.contracts.subjects import SERVICES
from shared.runtime.errors import SettingsError
from shared.runtime.settings import DatabaseSettings

T = TypeVar("T")

VERSION_TABLE: Final = "alembic_version"
_ONE_AT_A_TIME: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('tidegate.migrate', 0))")


class Executes(Protocol):
    """What of `alembic.op` the helpers use."""

    def execute(self, sqltext: str) -> None:
        """Run one statement."""


def create_outbox(op: Executes) -> None:
    """The table `outbox`: messages written with the change that caused them, published by the relay."""
    op.execute("""
        CREATE TABLE outbox (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            key text NOT NULL,
            subject text NOT NULL,
            msg_id text NOT NULL,
            headers jsonb NOT NULL,
            body bytea NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            sent_at timestamptz
        )
    """)
    op.execute("CREATE INDEX outbox_unsent ON outbox (id) WHERE sent_at IS NULL")
    op.execute("CREATE INDEX outbox_sent ON outbox (sent_at) WHERE sent_at IS NOT NULL")


def create_dead_letters(op: Executes) -> None:
    """The table `dead_letters`: deliveries that kept failing, with the reason."""
    op.execute("""
        CREATE TABLE dead_letters (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            consumer text NOT NULL,
            stream text NOT NULL,
            stream_seq bigint NOT NULL,
            msg_id text NOT NULL,
            subject text NOT NULL,
            headers jsonb NOT NULL,
            body bytea NOT NULL,
            error text NOT NULL,
            deliveries integer NOT NULL,
            parked_at timestamptz NOT NULL DEFAULT now(),
            retried_at timestamptz
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX dead_letters_once ON dead_letters (consumer, stream_seq, msg_id) WHERE retried_at IS NULL
    """)


def create_leases(op: Executes) -> None:
    """The table `leases`: what one replica does for all, until `until`; the epoch rises with every new holder."""
    op.execute("""
        CREATE TABLE leases (
            name text PRIMARY KEY,
            owner text NOT NULL,
            epoch bigint NOT NULL,
            until timestamptz NOT NULL
        )
    """)


def create_relayed(op: Executes, log: str = "outbox") -> None:
    """The table `relayed`, the newest message that the broker acknowledged per stream and subject, and the number in
    its stream of every row of `log` that was sent: what a broker's store that has lost messages is told by."""
    op.execute("""
        CREATE TABLE relayed (
            stream text NOT NULL,
            subject text NOT NULL,
            last_seq bigint NOT NULL,
            PRIMARY KEY (stream, subject)
        )
    """)
    op.execute(f"ALTER TABLE {log} ADD COLUMN stream_seq bigint")


def create_standing(op: Executes) -> None:
    """The table `standing`, one row: the epoch, and whether the database was restored and is not yet in step again."""
    op.execute("""
        CREATE TABLE standing (
            one boolean PRIMARY KEY DEFAULT true CONSTRAINT standing_one CHECK (one),
            epoch integer NOT NULL DEFAULT 1,
            restoring boolean NOT NULL DEFAULT false,
            backup_at timestamptz,
            restored_at timestamptz
        )
    """)
    op.execute("INSERT INTO standing DEFAULT VALUES")


async def migrate(service: str, owner_dsn: str, *, versions: Path | None = None) -> None:
    """Bring the service's schema to its newest revision; nothing happens where it is there already."""
    folder = versions or _versions(service)
    await _in_schema(service, owner_dsn, lambda connection: _upgrade(connection, folder))


async def differences(service: str, owner_dsn: str, metadata: MetaData | None = None) -> list[str]:
    """Where the migrated schema and the metadata of `services.<service>.tables` disagree. A test wants none."""
    wanted: MetaData = metadata or importlib.import_module(f"services.{service}.tables").metadata

    def compare(connection: Connection) -> list[str]:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return [repr(difference) for difference in compare_metadata(context, wanted)]

    return await _in_schema(service, owner_dsn, compare)


def _upgrade(connection: Connection, versions: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(versions.parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)

    def upgrade(current: Any, _: MigrationContext) -> Any:
        return script._upgrade_revs("head", current)  # what `alembic upgrade head` does after its env.py

    connection.execute(_ONE_AT_A_TIME)  # first: Alembic keeps its context in globals, so runs in one process clash too
    with EnvironmentContext(config, script, fn=upgrade) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        environment.run_migrations()


async def _in_schema(service: str, dsn: str, work: Callable[[Connection], T]) -> T:
    """Run `work` in one transaction whose search path is the service's schema."""

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(dsn, server_settings={"search_path": service, "application_name": "migrate"})

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    async with engine.begin() as connection:
        if await connection.scalar(text("SELECT current_schema()")) != service:
            raise SettingsError(f"schema {service!r} is not there for this login; provision the database first")
        return await connection.run_sync(work)


def _versions(service: str) -> Path:
    spec = importlib.util.find_spec(f"services.{service}")
    if service not in SERVICES or spec is None or spec.origin is None:
        raise SettingsError(f"{service!r} is no service with a schema; those are {', '.join(SERVICES)}")
    return Path(spec.origin).parent / "migrations" / "versions"


def main(arguments: list[str]) -> int:
    """`python -m shared.runtime.migrate <service>`."""
    match arguments:
        case [service]:
            dsn = DatabaseSettings.load().database_url.get_secret_value()
            asyncio.run(migrate(service, dsn))
            return 0
        case _:
            raise SettingsError(f"usage: python -m shared.runtime.migrate <service>; services: {', '.join(SERVICES)}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SettingsError, OSError, asyncpg.PostgresError) as error:
        sys.exit(f"migrate: {error}")
