"""The migrations make what tables.py says."""

from shared.runtime.migrate import differences
from tests.databases import FreshDatabase


async def test_the_migrated_schema_is_the_declared_one(service_database: FreshDatabase) -> None:
    database = await service_database("launcher")
    assert await differences("launcher", database.owner_url) == []
