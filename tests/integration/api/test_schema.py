"""The migrated schema is the one that the metadata says."""

from services.api.tables import metadata
from shared.runtime.migrate import differences
from tests.databases import FreshDatabase


async def test_the_migrations_make_what_the_metadata_says(service_database: FreshDatabase) -> None:
    database = await service_database("api")
    assert await differences("api", database.owner_url) == []
    assert "outbox" not in metadata.tables, "the event log is the outbox"
