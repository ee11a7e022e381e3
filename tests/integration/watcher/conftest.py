"""A watcher's world: a fresh database and a local backend with 8 virtual GPUs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.runtime.database import Database
from tests.databases import FreshDatabase
from tests.integration.backends.local.harness import Backend
from tests.integration.watcher.world import World


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """A root of its own with a running host; no process of it is left afterwards."""
    backend = Backend(tmp_path / "local")
    await backend.start_host("--virtual-gpus", "8", "--slots", "40")
    yield backend
    await backend.end()


@pytest.fixture
async def world(service_database: FreshDatabase, backend: Backend) -> AsyncIterator[World]:
    """Database and backend together."""
    fresh = await service_database("watcher")
    database = Database(fresh.url, schema="watcher")
    await database.connect()
    await database.execute("INSERT INTO leases VALUES ('observe', '', 0, '-infinity')")
    keeping = await database.connection()
    yield World(database, backend, keeping)
    await keeping.close()
    await database.close()
