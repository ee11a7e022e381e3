"""A provisioned database with the runtime's tables in every schema, streams and consumers: empty for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import nats
import pytest
from nats.js import JetStreamContext

from infra.postgres.provision import owner_role, provision, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.migrate import migrate
from shared.runtime.topology import ensure
from tests.integration.runtime.stores import DATABASE, Stores
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer, PostgresServer

VERSIONS = Path(__file__).parent / "versions"


@pytest.fixture(scope="session")
async def provisioned(postgres: PostgresServer) -> PostgresServer:
    """The server, with a database in which every schema has the runtime's tables."""
    await provision(postgres.superuser_url(), {role: postgres.password(role) for role in roles()}, database=DATABASE)
    for service in SERVICES:
        owner = owner_role(service)
        await migrate(service, postgres.postgres.url(owner, postgres.password(owner), DATABASE), versions=VERSIONS)
    return postgres


@pytest.fixture
async def stores(provisioned: PostgresServer, nats_url: str, nats_server: NatsServer) -> Stores:
    """Empty tables, empty streams, all consumers at their start."""
    connection = await asyncpg.connect(provisioned.superuser_url(DATABASE))
    try:
        emptied = ("outbox", "dead_letters", "leases", "relayed")
        tables = ", ".join(f"{service}.{table}" for service in SERVICES for table in emptied)
        await connection.execute(f"TRUNCATE {tables}")
        for service in SERVICES:
            await connection.execute(f"UPDATE {service}.standing SET epoch = 1, restoring = false, backup_at = NULL")
    finally:
        await connection.close()
    admin = await nats.connect(nats_url, **nats_server.login("admin"))
    try:
        await ensure(admin.jetstream(timeout=PATIENCE_SECONDS))
    finally:
        await admin.close()
    return Stores(provisioned, nats_server)


@pytest.fixture
async def admin_js(stores: Stores) -> AsyncIterator[JetStreamContext]:
    """JetStream as the administrator sees it."""
    connection = await nats.connect(stores.nats.url, **stores.nats.login("admin"))
    yield connection.jetstream(timeout=PATIENCE_SECONDS)
    await connection.close()
