"""The restore epoch: what the lost time wrote or asked for changes nothing after it, however high its number."""

from collections.abc import AsyncIterator

import pytest

from services.api import store
from services.api.domain import Change
from services.api.store import Entry, JobStore
from services.launcher import handlers
from shared.contracts.events import JobEvent, decode_event
from shared.lifecycle.facts import LauncherSealed
from shared.runtime.clock import SystemClock
from shared.runtime.database import Database
from shared.runtime.errors import Retryable
from tests.databases import FreshDatabase
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import World

GUARD = "AND next.epoch = (SELECT epoch FROM standing)"


@pytest.fixture
async def records(service_database: FreshDatabase) -> AsyncIterator[Database]:
    """The api's slice with one tenant."""
    made = await service_database("api")
    database = Database(made.url, schema="api")
    await database.connect()
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')")
    yield database
    await database.close()


async def a_process_that_was_frozen_over_the_restore(database: Database) -> list[str]:
    """It has read a record; the database is restored and its epoch raised; now it writes the next version."""
    jobs = JobStore(database, lambda tenants: None)
    job, now = Job("true"), SystemClock().now()
    async with jobs.transaction() as made:
        first = Entry.of(Change(job.record, "queued", now, "[]"))
        await made.create("acme", [first], {job.record.spec_digest: "{}"})
    try:
        async with jobs.transaction() as frozen:
            read = (await frozen.lock([job.id]))[job.id]
            await database.execute("UPDATE standing SET epoch = 2")
            late = read.model_copy(update={"seq": read.seq + 1, "name": "of the lost time"})
            await frozen.apply([Change(late, "evidence", now, "[]")])
    except Retryable:
        pass
    name = await database.fetchval("SELECT record ->> 'name' FROM jobs WHERE id = $1", job.id)
    return [] if name == job.record.name else [f"the record is a version {name}"]


async def an_event_of_the_lost_time_that_comes_late(world: World) -> list[str]:
    """In the lost time a job was stopped and retried. After the restore somebody stops it, and nobody retries it."""
    job, launcher = await world.job(), world.launcher()
    await launcher.handle(job.again())
    restored = job.record
    job.stop()
    job.apply(LauncherSealed(**job.head("launcher"), ran=False))
    job.retry()
    await world.stage(job)
    lost = job.staged()

    job.record = restored.model_copy(update={"epoch": 2})
    await launcher.handle(job.stop())
    await launcher.handle(lost)
    begun = await world.row(job, attempt=2)
    return [] if begun is None else ["what the lost time retried is launched"]


async def test_with_the_epoch_a_version_of_the_lost_time_is_not_written(records: Database) -> None:
    assert await a_process_that_was_frozen_over_the_restore(records) == []


async def test_without_it_a_version_of_the_lost_time_is_written(
    records: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GUARD in store.UPDATE
    monkeypatch.setattr(store, "UPDATE", store.UPDATE.replace(GUARD, ""))
    found = await a_process_that_was_frozen_over_the_restore(records)
    assert found == ["the record is a version of the lost time"]


async def test_with_the_epoch_nothing_of_the_lost_time_is_launched(launchers: World) -> None:
    assert await an_event_of_the_lost_time_that_comes_late(launchers) == []


async def test_without_it_what_the_lost_time_asked_for_is_launched(
    launchers: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_one_epoch(body: bytes) -> JobEvent:
        event = decode_event(body)
        return event.model_copy(update={"job": event.job.model_copy(update={"epoch": 1})})

    monkeypatch.setattr(handlers, "decode_event", of_one_epoch)
    found = await an_event_of_the_lost_time_that_comes_late(launchers)
    assert found == ["what the lost time retried is launched"]
