"""The event log as the relay's source: what of it is to be sent, and sent again after the broker has lost events."""

from collections.abc import AsyncIterator

import pytest

from services.api.outbox import EventLog
from shared.runtime.database import Database
from shared.runtime.leases import Lease
from shared.runtime.marks import Marks, Sent
from tests.databases import FreshDatabase

INSERT = """
INSERT INTO events (job, epoch, seq, tenant, position, type, at, headers, body, inputs)
SELECT job, 1, place, 'acme', place, 'queued', now(), '{}', '', '{}'
FROM unnest($1::text[]) WITH ORDINALITY AS row (job, place)
"""


@pytest.fixture
async def database(service_database: FreshDatabase) -> AsyncIterator[Database]:
    """Four events of two jobs, and the lease of the relay."""
    opened = Database((await service_database("api")).url, schema="api")
    await opened.connect()
    await opened.execute("INSERT INTO leases VALUES ('relay', 'one', 1, now() + interval '1 hour')")
    await opened.execute(INSERT, ["a", "b", "a", "b"])
    yield opened
    await opened.close()


async def test_events_are_sent_in_order_and_not_those_of_a_job_that_waits(database: Database) -> None:
    rows = await EventLog(database).fetch_unsent(10, [])
    assert [row.message.msg_id for row in rows] == ["a/1/1", "b/1/2", "a/1/3", "b/1/4"]
    assert {row.message.subject for row in rows} == {"jobs.v1.acme.queued"}
    assert [row.message.key for row in await EventLog(database).fetch_unsent(10, ["a"])] == ["b", "b"]


async def test_lost_events_are_to_be_sent_again_and_older_ones_are_not(database: Database) -> None:
    log = EventLog(database)
    marks = Marks(database, log, Lease("relay", "one"))
    rows = await log.fetch_unsent(10, [])
    await marks.mark(1, "JOBS", [Sent(row.id, row.message.subject, seq) for seq, row in enumerate(rows, start=11)])
    assert await marks.count_unsent() == 0
    assert await marks.highest() == {"JOBS": {"jobs.v1.>": 14}}
    await database.execute("UPDATE events SET sent_at = now() - interval '2 hours' WHERE seq = 3")
    assert await marks.lose(1, "JOBS", {"jobs.v1.>": 11}) == 2
    assert [row.message.msg_id for row in await log.fetch_unsent(10, [])] == ["b/1/2", "b/1/4"]
    assert await marks.highest() == {"JOBS": {"jobs.v1.>": 11}}
    assert await marks.untold() == ["JOBS"]
