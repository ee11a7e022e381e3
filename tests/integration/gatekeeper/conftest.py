"""A migrated database and a gatekeeper on it."""

from collections.abc import AsyncIterator

import pytest

from shared.runtime.database import Database
from tests.databases import FreshDatabase
from tests.integration.gatekeeper.world import World


@pytest.fixture
async def db(service_database: FreshDatabase) -> AsyncIterator[Database]:
    """The gatekeeper's own login to a fresh schema."""
    made = await service_database("gatekeeper")
    database = Database(made.url, schema="gatekeeper", max_connections=4)
    await database.connect()
    yield database
    await database.close()


@pytest.fixture
async def world(db: Database) -> World:
    """A gatekeeper that has heard of one cluster: 8 GPUs, 64 slots of coretype local."""
    world = World(db)
    await world.cluster()
    return world
