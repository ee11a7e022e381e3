"""A migrated database and metering on it."""

from collections.abc import AsyncIterator

import pytest

from shared.runtime.database import Database
from tests.databases import FreshDatabase
from tests.integration.metering.world import World


@pytest.fixture
async def world(service_database: FreshDatabase) -> AsyncIterator[World]:
    """Metering on its own login to a fresh schema."""
    made = await service_database("metering")
    database = Database(made.url, schema="metering", max_connections=4)
    await database.connect()
    yield World(database)
    await database.close()
