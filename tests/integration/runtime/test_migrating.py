"""Migrations run forward, once, whoever else runs them; and the metadata says what they made."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from infra.postgres.provision import owner_role, provision, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.errors import SettingsError
from shared.runtime.migrate import differences, migrate
from shared.runtime.tables import with_runtime_tables
from tests.integration.runtime.stores import DATABASE, Stores
from tests.servers import PostgresServer

VERSIONS = Path(__file__).parent / "versions"
SECOND = """
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("CREATE TABLE things (id integer PRIMARY KEY)")
"""


@pytest.mark.parametrize("service", SERVICES)
async def test_metadata_and_migrations_of_the_runtimes_tables_agree(stores: Stores, service: str) -> None:
    metadata = with_runtime_tables(MetaData())
    assert await differences(service, stores.dsn(owner_role(service)), metadata) == []


async def test_tells_where_metadata_and_migrations_differ(stores: Stores) -> None:
    metadata = with_runtime_tables(MetaData())
    Table("forgotten", metadata, Column("id", Integer, primary_key=True))
    [difference] = await differences("api", stores.dsn("api_owner"), metadata)
    assert "add_table" in difference
    assert "forgotten" in difference


async def test_a_new_revision_is_applied_once_though_replicas_run_it_together(
    provisioned: PostgresServer, tmp_path: Path
) -> None:
    database = "tidegate_migrating"
    await provision(
        provisioned.superuser_url(), {role: provisioned.password(role) for role in roles()}, database=database
    )
    dsn = provisioned.postgres.url("stager_owner", provisioned.password("stager_owner"), database)
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "0001_first.py").write_text((VERSIONS / "0001_first.py").read_text())
    await asyncio.gather(*(migrate("stager", dsn, versions=versions) for _ in range(3)))
    (versions / "0002_things.py").write_text(SECOND)
    await asyncio.gather(*(migrate("stager", dsn, versions=versions) for _ in range(3)))
    [difference] = await differences("stager", dsn, with_runtime_tables(MetaData()))
    assert "things" in difference


async def test_a_failing_revision_leaves_nothing_behind(provisioned: PostgresServer, tmp_path: Path) -> None:
    dsn = provisioned.postgres.url("watcher_owner", provisioned.password("watcher_owner"), DATABASE)
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "0001_first.py").write_text((VERSIONS / "0001_first.py").read_text())
    (versions / "0002_things.py").write_text(SECOND + '    op.execute("SELECT nonsense")\n')
    with pytest.raises(Exception, match="nonsense"):
        await migrate("watcher", dsn, versions=versions)
    assert await differences("watcher", dsn, with_runtime_tables(MetaData())) == []


async def test_an_unknown_service_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="'nobody' is no service with a schema; those are api, gatekeeper"):
        await migrate("nobody", "postgresql://nowhere/")
