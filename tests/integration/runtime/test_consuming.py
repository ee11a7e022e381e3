"""What a handler gets, and what becomes of messages whose handler raises."""

import asyncio
import json

import orjson
import pytest
from nats.js import JetStreamContext

from shared.runtime import consume, pull, verdicts
from shared.runtime.errors import Final, Retryable, RpcUnavailable
from shared.runtime.messages import Delivery
from shared.runtime.service import Service
from shared.runtime.topology import CONSUMERS
from tests.integration.runtime.stores import Received, Stores, a_message, enqueue, eventually, running
from tests.patience import PATIENCE_SECONDS


async def test_hands_over_a_lone_message_and_says_where_it_stands(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    gatekeeper.consume("gatekeeper")(received)
    async with running(gatekeeper, api):
        await enqueue(api, [a_message("one")])
        await received.all(["one"])
    [[delivery]] = received.batches
    assert (delivery.subject, delivery.deliveries, delivery.stream_seq) == ("jobs.v1.acme.queued", 1, 1)
    assert delivery.headers["Nats-Msg-Id"] == "one"


async def arrived(service: Service, count: int) -> None:
    """Wait until so many messages have come to this replica and wait for its handler."""
    puller = service._loops["gatekeeper"]._puller

    async def there() -> bool:
        return len(puller.waiting()) == count

    await eventually(there, f"{count} messages to wait behind the one that is handled")


@pytest.fixture
def requests_do_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a handler runs, what was asked for before still comes; what had expired would be asked for after it."""
    monkeypatch.setattr(pull, "_EXPIRES_SECONDS", 3600.0)


@pytest.mark.usefixtures("requests_do_not_expire")
async def test_forms_batches_of_what_arrived_while_the_handler_ran(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @gatekeeper.consume("gatekeeper", batch=50)
    async def handle(deliveries: list[Delivery]) -> None:
        await received(deliveries)
        begun.set()
        await go_on.wait()

    async with running(gatekeeper, api):
        await enqueue(api, [a_message("first")])
        await begun.wait()
        await enqueue(api, [a_message(f"{number}") for number in range(120)])
        await arrived(gatekeeper, 49)  # of the 50 that were asked for; the other 71 are asked for later
        go_on.set()
        await received.all([f"{number}" for number in range(120)])
    assert received.bodies == ["first", *(f"{number}" for number in range(120))]
    sizes = [len(batch) for batch in received.batches]
    assert sizes[:2] == [1, 49]
    assert max(sizes) <= 50


async def test_reads_only_what_its_filters_name(stores: Stores) -> None:
    api, stager, received = stores.service("api"), stores.service("stager"), Received()
    stager.consume("stager")(received)
    async with running(stager, api):
        await enqueue(api, [a_message("not for it", event="queued"), a_message("for it", event="submitted")])
        await received.all(["for it"])
    assert received.bodies == ["for it"]


async def test_a_poison_message_blocks_no_other_and_is_parked_shown_and_driven_again(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    healed = asyncio.Event()

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        if any(delivery.body == b"7" for delivery in deliveries) and not healed.is_set():
            raise Final("seven is not a number of ours")
        await received(deliveries)

    numbers = [f"{number}" for number in range(20)]
    async with running(gatekeeper, api):
        await enqueue(api, [a_message(number) for number in numbers])
        await received.all(set(numbers) - {"7"})

        async def parked() -> list[dict[str, object]]:
            letters: list[dict[str, object]] = json.loads(
                await api.call("gatekeeper", "dead_letters_ls", b"", PATIENCE_SECONDS)
            )
            return letters

        await eventually(parked, "the dead letter")
        [letter] = await parked()
        assert letter["error"] == "Final: seven is not a number of ours"
        assert (letter["stream"], letter["consumer"], letter["deliveries"]) == ("JOBS", "gatekeeper", 1)

        named = orjson.dumps({"id": letter["id"]})
        shown = json.loads(await api.call("gatekeeper", "dead_letters_show", named, PATIENCE_SECONDS))
        assert (shown["body"], shown["body_encoding"], shown["headers"]["Nats-Msg-Id"]) == (7, "json", "7")

        failed = json.loads(await api.call("gatekeeper", "dead_letters_retry", named, PATIENCE_SECONDS))
        assert failed == {"id": letter["id"], "retried": False, "error": "Final: seven is not a number of ours"}

        healed.set()
        assert (
            json.loads(await api.call("gatekeeper", "dead_letters_retry", named, PATIENCE_SECONDS))["retried"] is True
        )
        assert "7" in received.bodies
        assert await parked() == []


async def test_an_unknown_error_is_tried_eight_times_and_then_parked(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, gatekeeper = stores.service("api"), stores.service("gatekeeper")
    tries: list[int] = []

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        tries.extend(delivery.deliveries for delivery in deliveries)
        raise RuntimeError("broken today")

    monkeypatch.setattr(verdicts, "_DELAYS_SECONDS", (0.01,))
    async with running(gatekeeper, api):
        await enqueue(api, [a_message("x")])

        async def parked() -> bool:
            return bool(await stores.rows("SELECT 1 FROM gatekeeper.dead_letters"))

        await eventually(parked, "the dead letter")
    assert tries == [1, 2, 3, 4, 5, 6, 7, 8]
    [letter] = await stores.rows("SELECT error, deliveries FROM gatekeeper.dead_letters")
    assert letter["error"] == "failed 8 times, at last with RuntimeError: broken today"


async def test_a_retryable_error_brings_the_message_again_and_no_other(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        if any(delivery.body == b"later" and delivery.deliveries < 3 for delivery in deliveries):
            raise Retryable("not yet")
        await received(deliveries)

    async with running(gatekeeper, api):
        await enqueue(api, [a_message(body) for body in ("before", "later", "after")])
        await received.all(["before", "later", "after"])
    assert sorted(received.bodies) == ["after", "before", "later"]


@pytest.mark.usefixtures("requests_do_not_expire")
async def test_a_batch_is_not_tried_one_by_one_where_somebody_else_is_away(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    begun, go_on = asyncio.Event(), asyncio.Event()
    tried: list[list[str]] = []

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        elif fresh := [delivery.body.decode() for delivery in deliveries if delivery.deliveries == 1]:
            tried.append(fresh)
            raise RpcUnavailable("nobody there")
        await received(deliveries)

    numbers = [f"{number}" for number in range(30)]
    async with running(gatekeeper, api):
        await enqueue(api, [a_message("first")])
        await begun.wait()
        await enqueue(api, [a_message(number) for number in numbers])
        await arrived(gatekeeper, len(numbers))
        go_on.set()
        await received.all(["first", *numbers])
    assert tried == [numbers], "all together, and nobody alone"
    assert sorted(received.bodies) == sorted(["first", *numbers])


async def test_an_unparsable_body_is_parked_at_once(stores: Stores) -> None:
    api, gatekeeper = stores.service("api"), stores.service("gatekeeper")

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            orjson.loads(delivery.body)

    async with running(gatekeeper, api):
        await enqueue(api, [a_message("{")])

        async def parked() -> bool:
            return bool(await stores.rows("SELECT 1 FROM gatekeeper.dead_letters WHERE deliveries = 1"))

        await eventually(parked, "the dead letter")


async def test_repeats_are_delivered_and_handlers_see_that_they_are(stores: Stores, admin_js: JetStreamContext) -> None:
    """The duplicate window is an optimisation: a repeat under another id, or after a lost ack, does arrive."""
    gatekeeper, received = stores.service("gatekeeper"), Received()
    lost_ack = asyncio.Event()

    @gatekeeper.consume("gatekeeper")
    async def handle(deliveries: list[Delivery]) -> None:
        await received(deliveries)
        if not lost_ack.is_set():
            lost_ack.set()
            raise Retryable("as if the acknowledgement had been lost")

    async with running(gatekeeper):
        for msg_ids, deliveries in (("aa", 2), ("b", 3)):  # the second comes once the first has come again
            for msg_id in msg_ids:
                await admin_js.publish("jobs.v1.acme.queued", b"same", headers={"Nats-Msg-Id": msg_id})

            async def delivered(count: int = deliveries) -> bool:
                return len(received.bodies) >= count

            await eventually(delivered, f"{deliveries} deliveries")
    seen = [(delivery.stream_seq, delivery.deliveries) for batch in received.batches for delivery in batch]
    assert seen == [(1, 1), (1, 2), (2, 1)]


async def test_a_long_handler_keeps_its_messages(
    stores: Stores, admin_js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case F6: held longer than `ack_wait`, what it works on and what waits behind it goes to no other replica."""
    monkeypatch.setattr(consume, "_HEARTBEAT_SECONDS", 0.1)
    api, slow, other = stores.service("api"), stores.service("gatekeeper"), stores.service("gatekeeper")
    received, stolen = Received(), Received()
    config = CONSUMERS["gatekeeper"].config()
    config.ack_wait = 3.0
    await admin_js.add_consumer("JOBS", config)
    other.consume("gatekeeper")(stolen)
    go_on = asyncio.Event()

    @slow.consume("gatekeeper", batch=1)
    async def handle(deliveries: list[Delivery]) -> None:
        await received(deliveries)
        await go_on.wait()

    async def both_held() -> bool:
        return bool((await admin_js.consumer_info("JOBS", "gatekeeper")).num_ack_pending == 2)

    async with running(slow, api):
        await enqueue(api, [a_message("slow"), a_message("behind")])
        await eventually(both_held, "both messages to be fetched")
        async with running(other):
            await asyncio.sleep(4)  # the time that has to pass without a redelivery
            go_on.set()
            await received.all(["slow", "behind"])
    assert stolen.bodies == []
    assert received.bodies == ["slow", "behind"]


async def test_handlers_of_one_consumer_share_its_messages(stores: Stores) -> None:
    """Two replicas: each message goes to one of them."""
    api, one, other = stores.service("api"), stores.service("gatekeeper"), stores.service("gatekeeper")
    received, more = Received(), Received()
    one.consume("gatekeeper", batch=5)(received)
    other.consume("gatekeeper", batch=5)(more)
    numbers = [f"{number}" for number in range(200)]
    async with running(one, other, api):
        await enqueue(api, [a_message(number) for number in numbers])

        async def all_there() -> bool:
            return len(received.bodies) + len(more.bodies) >= len(numbers)

        await eventually(all_there, "all messages")
    assert sorted(received.bodies + more.bodies) == sorted(numbers)
