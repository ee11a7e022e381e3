"""The migrated schema is what the tables say."""

from shared.runtime.migrate import differences
from tests.databases import FreshDatabase


async def test_migrations_make_the_tables_that_are_declared(service_database: FreshDatabase) -> None:
    made = await service_database("gatekeeper")
    assert await differences("gatekeeper", made.owner_url) == []
