"""What is enqueued is published: in order within a key, once or more, whatever the stores do meanwhile."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import pytest
from nats.js import JetStreamContext

from shared.runtime import relay
from shared.runtime.errors import DatabaseUnavailable, PublishDenied
from shared.runtime.messages import Delivery
from shared.runtime.outbox import OutboxTable, Outgoing
from shared.runtime.service import Service
from tests.integration.runtime.stores import (
    Received,
    Stores,
    a_message,
    all_sent,
    bodies_of,
    enqueue,
    eventually,
    running,
    unsent,
)


async def enqueue_numbered(service: Service, key: str, counter: dict[str, int], count: int) -> None:
    """Enqueue the key's next messages as services do: under a lock on the key's row."""
    async with service.db.transaction() as tx:
        await tx.execute("SELECT pg_advisory_xact_lock(hashtext($1))", key)
        first = counter[key]
        await asyncio.sleep(0)
        counter[key] = first + count
        await tx.enqueue([a_message(f"{key}:{number}", key=key) for number in range(first, first + count)])


def by_key(bodies: list[str]) -> dict[str, list[int]]:
    """First deliveries of each key's numbers, in order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for body in dict.fromkeys(bodies):
        key, number = body.split(":")
        numbers[key].append(int(number))
    return numbers


async def test_keeps_the_order_within_a_key_while_many_enqueue(stores: Stores, admin_js: JetStreamContext) -> None:
    api, counter = stores.service("api"), defaultdict[str, int](int)
    async with running(api):
        await asyncio.gather(
            *(enqueue_numbered(api, f"job{number % 5}", counter, 1 + number % 3) for number in range(200))
        )
        await all_sent(stores)
    numbers = by_key(await bodies_of(admin_js))
    assert numbers == {key: list(range(count)) for key, count in counter.items()}


async def test_publishes_nothing_of_a_transaction_that_rolled_back(stores: Stores, admin_js: JetStreamContext) -> None:
    api = stores.service("api")
    async with running(api):
        with suppress(LookupError):
            async with api.db.transaction() as tx:
                await tx.enqueue([a_message("undone")])
                raise LookupError("changed my mind")
        await enqueue(api, [a_message("done")])
        await all_sent(stores)
    assert await bodies_of(admin_js) == ["done"]


async def test_a_batch_refused_for_a_known_id_goes_one_by_one(stores: Stores, admin_js: JetStreamContext) -> None:
    api = stores.service("api")
    await admin_js.publish("jobs.v1.acme.queued", b"b", headers={"Nats-Msg-Id": "b"})
    async with running(api):
        await enqueue(api, [a_message("a"), a_message("b"), a_message("c")])
        await all_sent(stores)
    assert await bodies_of(admin_js) == ["b", "a", "c"]


async def test_publishes_a_backlog_as_atomic_batches(stores: Stores, admin_js: JetStreamContext) -> None:
    api = stores.service("api")
    await api.db.connect()
    await enqueue(api, [a_message(f"{number}") for number in range(700)])
    async with running(api):
        await all_sent(stores)
    assert await bodies_of(admin_js) == [f"{number}" for number in range(700)]
    message = await admin_js.get_msg("JOBS", 500)
    assert (message.headers or {})["Nats-Batch-Commit"] == "1"


async def test_a_refused_message_holds_back_its_own_key_only(stores: Stores, admin_js: JetStreamContext) -> None:
    api = stores.service("api")
    too_large = Outgoing("jobs.v1.acme.queued", "large", "sick", b"x" * 1_100_000)
    async with running(api):
        await enqueue(api, [a_message("before", key="well"), too_large, a_message("behind", key="sick")])
        await enqueue(api, [a_message("after", key="well")])

        async def published() -> bool:
            return await bodies_of(admin_js) == ["before", "after"]

        async def marked() -> bool:
            return await unsent(stores) == 2

        await eventually(published, "the messages of the other key")
        await eventually(marked, "these two to be marked as sent, and the other two not")


async def test_a_denied_message_is_named_and_holds_nobody_else_up(stores: Stores, admin_js: JetStreamContext) -> None:
    api = stores.service("api")
    foreign = Outgoing("facts.v1.gatekeeper.admitted", "forged", "other job", b"forged")
    async with running(api):
        await enqueue(api, [foreign, a_message("own")])

        async def published() -> bool:
            return await bodies_of(admin_js) == ["own"]

        await eventually(published, "the service's own message")
        with pytest.raises(PublishDenied, match=r"user api may not publish on facts\.v1\.gatekeeper\.admitted"):
            await api.publish(foreign.subject, foreign.body, stream="FACTS")
    assert await bodies_of(admin_js, "FACTS") == []


async def test_remembers_under_which_number_the_broker_has_each(stores: Stores, admin_js: JetStreamContext) -> None:
    api, launcher = stores.service("api"), stores.service("launcher")
    await admin_js.publish("jobs.v1.acme.queued", b"c", headers={"Nats-Msg-Id": "c"})
    await admin_js.publish("facts.v1.watcher.exited", b"")
    facts = [
        Outgoing(f"facts.v1.launcher.{kind}", f"{place}", "job", b"")
        for place, kind in enumerate(("accepted", "gpus_freed", "accepted", "launcher_sealed"))
    ]
    async with running(api, launcher):
        await enqueue(api, [a_message("a"), a_message("b")])
        await all_sent(stores)
        await enqueue(api, [a_message("c"), a_message("d")])
        await all_sent(stores)
        await enqueue(launcher, facts)
        await all_sent(stores, service="launcher")
    rows = await stores.rows("SELECT msg_id, stream_seq FROM api.outbox")
    assert {row["msg_id"]: row["stream_seq"] for row in rows} == {"a": 2, "b": 3, "c": 1, "d": 4}
    assert {row["subject"]: row["last_seq"] for row in await stores.rows("SELECT * FROM api.relayed")} == {
        "jobs.v1.>": 4
    }
    assert {row["subject"]: row["last_seq"] for row in await stores.rows("SELECT * FROM launcher.relayed")} == {
        "facts.v1.launcher.accepted": 4,
        "facts.v1.launcher.gpus_freed": 3,
        "facts.v1.launcher.launcher_sealed": 5,
    }


async def test_hundreds_of_refused_messages_of_one_key_hold_nobody_else_up(
    stores: Stores, admin_js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "BATCH", 20)
    api = stores.service("api")
    await api.db.connect()
    too_large = Outgoing("jobs.v1.acme.queued", "large", "sick", b"x" * 1_100_000)
    await enqueue(api, [too_large, *(a_message(f"{number}", key="sick") for number in range(100))])
    await enqueue(api, [a_message("well", key="well")])
    async with running(api):

        async def published() -> bool:
            return await bodies_of(admin_js) == ["well"]

        await eventually(published, "the message of the other key")


async def room_for_more(enqueued: Iterable[int], received: Received) -> None:
    """Keep what is under way within bounds, however long an outage takes."""

    async def there_is() -> bool:
        return sum(enqueued) - len(received.bodies) < 500

    await eventually(there_is, "what was enqueued to arrive")


async def test_everything_arrives_in_order_though_the_broker_is_killed_midway(
    stores: Stores, admin_js: JetStreamContext
) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    counter = defaultdict[str, int](int)
    gatekeeper.consume("gatekeeper")(received)
    enough = asyncio.Event()

    async def produce() -> None:
        for number in itertools.count():
            if enough.is_set():
                return
            await room_for_more(counter.values(), received)
            await enqueue_numbered(api, f"job{number % 7}", counter, 5)

    async with running(gatekeeper, api):
        producing = asyncio.create_task(produce())
        for _ in range(2):
            seen = len(received.bodies)

            async def more(seen: int = seen) -> bool:
                return len(received.bodies) > seen + 50

            await eventually(more, "deliveries")
            stores.nats.kill()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(stores.nats.start)
        enough.set()
        await producing
        await received.all([f"{key}:{number}" for key, count in counter.items() for number in range(count)])
        await all_sent(stores)
    assert by_key(await bodies_of(admin_js)) == {key: list(range(count)) for key, count in counter.items()}


async def test_everything_arrives_though_the_database_is_killed_midway(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    enqueued: list[str] = []
    enough = asyncio.Event()

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        async with gatekeeper.db.transaction() as tx:
            await tx.fetchval("SELECT count(*) FROM outbox")
        await received(deliveries)

    async def produce() -> None:
        while not enough.is_set():
            body = f"{len(enqueued)}"
            await room_for_more([len(enqueued)], received)
            while True:
                try:
                    await enqueue(api, [a_message(body)])
                    break
                except DatabaseUnavailable:
                    await asyncio.sleep(0.05)
            enqueued.append(body)

    async with running(gatekeeper, api):
        producing = asyncio.create_task(produce())

        async def under_way() -> bool:
            return len(received.bodies) > 50

        await eventually(under_way, "deliveries")
        stores.postgres.kill()
        await asyncio.sleep(0.3)
        await asyncio.to_thread(stores.postgres.start)
        enough.set()
        await producing
        await received.all(enqueued)
        assert not await stores.rows("SELECT 1 FROM gatekeeper.dead_letters")
    assert max(delivery.deliveries for batch in received.batches for delivery in batch) == 1


async def test_sent_rows_are_kept_for_an_hour_and_then_purged(stores: Stores) -> None:
    api = stores.service("api")
    async with running(api):
        await enqueue(api, [a_message("old"), a_message("new")])
        await all_sent(stores)
        await api.db.execute("UPDATE outbox SET sent_at = now() - interval '61 minutes' WHERE msg_id = 'old'")
        await OutboxTable(api.db).purge()
        assert [row["msg_id"] for row in await api.db.fetch("SELECT msg_id FROM outbox")] == ["new"]
