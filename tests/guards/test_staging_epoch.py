"""The staging epoch: who lost the lease of an attempt publishes nothing, and writes into a directory of its own."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.stager.domain import Stage
from services.stager.leases import Claim, Leases
from services.stager.store import Store, Write
from shared.runtime.clock import SystemClock
from shared.runtime.database import Database
from tests.databases import FreshDatabase


@pytest.fixture
async def stagings(service_database: FreshDatabase) -> AsyncIterator[Database]:
    """The stager's slice with one attempt whose inputs are to be staged."""
    made = await service_database("stager")
    database = Database(made.url, schema="stager")
    await database.connect()
    async with database.transaction() as tx:
        await Store(database).insert(tx, [Write("j1", 1, "acme", "sha256:0", 1, 1, Stage.STAGE_IN)])
    yield database
    await database.close()


def replica(database: Database, name: str) -> Leases:
    return Leases(database, SystemClock(), replica=name, lease_seconds=60, epoch=lambda: 1)


async def publish(leases: Leases, claim: Claim) -> bool:
    """As a worker does when the directory of its lease is whole."""
    directory = f"work/acme/j1/a1/{claim.mark}"
    return await leases.publish(
        claim,
        Stage.STAGED,
        lambda heading: [heading.staged(directory, nothing_to_copy=True)],
        directory=directory,
    )


async def a_stager_that_was_frozen_over_its_lease(database: Database) -> list[str]:
    """It staged half; another took the lease over and published; now it goes on to its end."""
    frozen, other = replica(database, "frozen"), replica(database, "other")
    [old] = await frozen.claim(Stage.STAGE_IN, 1)
    await database.execute("UPDATE staging SET deadline = now() - interval '1 second'")
    [new] = await other.claim(Stage.STAGE_IN, 1)
    assert old.mark != new.mark, "two leases write into one directory"
    assert await publish(other, new)
    await publish(frozen, old)
    return await _told_wrongly(database, f"work/acme/j1/a1/{new.mark}")


async def _told_wrongly(database: Database, published: str) -> list[str]:
    row: asyncpg.Record = await database.fetchrow("SELECT directory FROM staging")
    count = await database.fetchval("SELECT count(*) FROM outbox WHERE subject LIKE '%.staged'")
    found = [] if row["directory"] == published else [f"the published directory is {row['directory']} now"]
    return found + ([] if count == 1 else [f"the staging was told {count} times"])


async def test_with_the_fence_what_was_published_stays(stagings: Database) -> None:
    assert await a_stager_that_was_frozen_over_its_lease(stagings) == []


async def test_without_the_fence_a_late_stager_replaces_it(stagings: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leases, "_is_ours", lambda leases, row, claim: True)
    assert await a_stager_that_was_frozen_over_its_lease(stagings) == [
        "the published directory is work/acme/j1/a1/e1 now",
        "the staging was told 2 times",
    ]
