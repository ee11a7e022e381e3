"""Of several replicas one relays; the others tell it of their commits, and one that woke up late does no harm."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from shared.runtime import relay
from shared.runtime.leases import Lease, LeaseLost
from shared.runtime.marks import Marks, Sent
from shared.runtime.outbox import OutboxTable
from tests.integration.runtime.stores import (
    Stores,
    a_message,
    all_sent,
    bodies_of,
    enqueue,
    eventually,
    running,
    unsent,
)

PROGRAM = Path(__file__).parent / "relaying_service.py"
ROOT = Path(__file__).parents[3]


async def test_another_replica_takes_over_when_the_lead_is_lost(stores: Stores, admin_js: JetStreamContext) -> None:
    one, other = stores.service("api"), stores.service("api")
    async with running(one, other):
        for turn in range(3):
            await enqueue(one, [a_message(f"{turn}")])
            await all_sent(stores)
            await stores.rows("UPDATE api.leases SET epoch = epoch + 1, owner = 'gone', until = clock_timestamp()")
        await enqueue(other, [a_message("last")])
        await all_sent(stores)
    assert await bodies_of(admin_js) == ["0", "1", "2", "last"]


async def test_a_commit_of_a_replica_that_does_not_lead_is_sent_at_once(
    stores: Stores, admin_js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells the one that leads, which by itself would look in an hour."""
    monkeypatch.setattr(relay, "POLL_SECONDS", 3600.0)
    one, other = stores.service("api", replica="one"), stores.service("api", replica="other")
    async with running(one):
        await enqueue(one, [a_message("its own")])
        await all_sent(stores)
        async with running(other):
            for turn in range(3):
                await enqueue(other, [a_message(f"{turn}")])
                await all_sent(stores)
    assert await bodies_of(admin_js) == ["its own", "0", "1", "2"]


async def test_marks_nothing_once_another_replica_may_relay(stores: Stores) -> None:
    api = stores.service("api")
    await api.db.connect()
    await enqueue(api, [a_message("late")])
    await stores.rows("INSERT INTO api.leases VALUES ('relay', 'one', 7, now() + interval '1 hour')")
    lease = Lease("relay", "one")
    marks = Marks(api.db, OutboxTable(api.db), lease)
    [row] = await OutboxTable(api.db).fetch_unsent(1, [])
    sent = [Sent(row.id, row.message.subject, 1)]
    try:
        for epoch in (6, 8):
            with pytest.raises(LeaseLost):
                await marks.mark(epoch, "JOBS", sent)
            with pytest.raises(LeaseLost):
                await marks.lose(epoch, "JOBS", {"jobs.v1.>": 0})
        assert await unsent(stores) == 1
        assert not await stores.rows("SELECT 1 FROM api.relayed")
        await marks.mark(7, "JOBS", sent)
        assert await unsent(stores) == 0
    finally:
        await api.db.close()


async def test_publishes_nothing_once_another_replica_may_relay(stores: Stores, admin_js: JetStreamContext) -> None:
    """As one does that was stopped after it had read the rows: its round goes on, and the lease is another's."""
    api = stores.service("api")
    await api.db.connect()
    await api.broker.connect()
    try:
        await enqueue(api, [a_message("late")])
        api.relay._connection = api.broker.connections
        with pytest.raises(LeaseLost):
            await api.relay.round()
    finally:
        await api.broker.close()
        await api.db.close()
    assert await bodies_of(admin_js) == []


async def test_a_leader_that_was_stopped_and_goes_on_sends_and_marks_nothing_more(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    """Stopped where it has read rows and not sent them; the other replica sends and marks all meanwhile."""
    other, bodies = stores.service("api", replica="other"), [f"{number}" for number in range(600)]
    await other.db.connect()
    (tmp_path / "armed").mkdir()
    (tmp_path / "obeyed").mkdir()
    (tmp_path / "armed" / "api.publish.before").write_text("stop")
    async with a_replica(stores, tmp_path) as (process, log):
        await enqueue(other, [a_message(body) for body in bodies])

        async def stopped() -> bool:
            return (tmp_path / "obeyed" / f"api.publish.before.{process.pid}").exists()

        await eventually(stopped, "the leader to stop there")
        async with running(other):
            await all_sent(stores)
            [before] = await stores.rows(
                "SELECT max(sent_at) AS last, array_agg(stream_seq) AS numbers FROM api.outbox"
            )
            process.send_signal(signal.SIGCONT)

            async def follows() -> bool:
                return "relay follows" in log.read_text()

            await eventually(follows, "the stopped replica to follow")
            [after] = await stores.rows("SELECT max(sent_at) AS last, array_agg(stream_seq) AS numbers FROM api.outbox")
            assert after == before
    assert await bodies_of(admin_js) == bodies


@asynccontextmanager
async def a_replica(stores: Stores, folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """A replica of `api` as a process that obeys orders in the folder, and its log; killed at the end."""
    environ = {**os.environ, **stores.environ("api"), "PYTHONPATH": str(ROOT), "TIDEGATE_REPLICA": "one"}
    environ["TIDEGATE_FAILPOINTS"] = str(folder)
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), env=environ, stderr=output)
    try:
        yield process, log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
