"""The broker's store is emptied or taken back to an older copy: nothing that was sent within the hour is missing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from shared.runtime.messages import Delivery
from shared.runtime.topology import ensure
from tests.integration.runtime.losing import all_stored, copy_of, facts, kept, lose, tells
from tests.integration.runtime.stores import (
    Received,
    Stores,
    a_message,
    all_sent,
    bodies_of,
    enqueue,
    eventually,
    running,
)
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer

either_way = pytest.mark.parametrize("keeps_a_copy", [True, False], ids=["an older copy", "nothing"])


@pytest.fixture
async def own(stores: Stores, own_nats_server: NatsServer) -> Stores:
    """The usual database with a broker of this test alone."""
    connection = await nats.connect(own_nats_server.url, **own_nats_server.login("admin"))
    await ensure(connection.jetstream())
    await connection.close()
    return Stores(stores.postgres, own_nats_server)


@pytest.fixture
async def own_js(own: Stores) -> AsyncIterator[JetStreamContext]:
    """JetStream of that broker as the administrator sees it."""
    connection = await nats.connect(
        own.nats.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, **own.nats.login("admin")
    )
    yield connection.jetstream()
    await connection.close()


@either_way
async def test_what_is_lost_is_sent_again_and_consumers_go_on(
    own: Stores, own_js: JetStreamContext, tmp_path: Path, keeps_a_copy: bool
) -> None:
    api, gatekeeper, received = own.service("api"), own.service("gatekeeper"), Received()
    gatekeeper.consume("gatekeeper")(received)
    told = tells(api)
    early, late = [f"early{n}" for n in range(30)], [f"late{n}" for n in range(30)]
    async with kept(own), running(gatekeeper, api):
        await enqueue(api, [a_message(body, key=body) for body in early])
        await received.all(early)
        await all_sent(own)
        copy = copy_of(own, tmp_path)
        await enqueue(api, [a_message(body, key=body) for body in late])
        await received.all(late)
        await all_sent(own)
        await lose(own, copy if keeps_a_copy else None)
        await all_stored(own_js, early + late, "JOBS")
        await enqueue(api, [a_message("after")])
        await received.all(["after"])
        await all_sent(own)
    assert await bodies_of(own_js) == [*early, *late, "after"]
    assert told == ["JOBS"]
    times = Counter(received.bodies)
    assert min(times[body] for body in late) >= 2, "and delivered again"
    [relayed] = await own.rows("SELECT subject, last_seq FROM api.relayed")
    assert tuple(relayed) == ("jobs.v1.>", 61)


@either_way
async def test_what_is_lost_is_noticed_though_others_have_filled_the_stream_up_again(
    own: Stores, own_js: JetStreamContext, tmp_path: Path, keeps_a_copy: bool
) -> None:
    """The stream's last number has passed all that the launcher knows of before it is there again."""
    watcher, launcher, again = own.service("watcher"), own.service("launcher"), own.service("launcher")
    early, late = [f"early{n}" for n in range(5)], [f"late{n}" for n in range(5)]
    async with kept(own), running(watcher):
        async with running(launcher):
            await enqueue(launcher, facts("launcher", "accepted", early))
            await enqueue(launcher, facts("launcher", "gpus_freed", ["survives"]))
            await all_sent(own, service="launcher")
            copy = copy_of(own, tmp_path)
            await enqueue(launcher, facts("launcher", "accepted", late))
            await all_sent(own, service="launcher")
        await lose(own, copy if keeps_a_copy else None)
        others = [f"other{n}" for n in range(30)]
        await enqueue(watcher, facts("watcher", "exited", others))
        await all_stored(own_js, others, "FACTS")
        before = (await own_js.stream_info("FACTS")).state.last_seq
        [row] = await own.rows("SELECT max(last_seq) AS highest FROM launcher.relayed")
        assert before > row["highest"]
        async with running(again):
            await all_stored(own_js, [*early, "survives", *late], "FACTS")
            await all_sent(own, service="launcher")
    assert len(await bodies_of(own_js, "FACTS")) == len([*early, "survives", *late, *others]), "and nothing twice"


async def test_nothing_is_sent_again_where_nothing_is_lost(own: Stores, own_js: JetStreamContext) -> None:
    """Nor where a stream has dropped by age what it had."""
    api, launcher = own.service("api"), own.service("launcher")
    told = tells(api)
    async with running(api, launcher):
        await enqueue(api, [a_message("a"), a_message("b")])
        await enqueue(launcher, facts("launcher", "accepted", ["c"]))
        await all_sent(own)
        await all_sent(own, service="launcher")
        await own_js.purge_stream("FACTS")
        own.nats.kill()
        await asyncio.to_thread(own.nats.start)
        await enqueue(api, [a_message("d")])
        await enqueue(launcher, facts("launcher", "accepted", ["e"]))
        await all_sent(own)
        await all_sent(own, service="launcher")
    assert (await own_js.stream_info("JOBS")).state.last_seq == 3
    info = (await own_js.stream_info("FACTS")).state
    assert (info.messages, info.last_seq) == (1, 2)
    assert told == []


async def test_only_what_was_sent_within_the_hour_is_sent_again(own: Stores, own_js: JetStreamContext) -> None:
    api = own.service("api")
    async with kept(own), running(api):
        await enqueue(api, [a_message("old"), a_message("new")])
        await all_sent(own)
        await api.db.execute("UPDATE outbox SET sent_at = now() - interval '61 minutes' WHERE msg_id = 'old'")
        await lose(own, None)
        await all_stored(own_js, ["new"], "JOBS")
    assert await bodies_of(own_js) == ["new"]


async def test_a_stream_made_anew_without_a_reconnect_is_noticed_by_its_numbers(
    own: Stores, own_js: JetStreamContext
) -> None:
    api, launcher = own.service("api"), own.service("launcher")
    told = tells(api)
    async with running(api, launcher):
        await enqueue(api, [a_message("a"), a_message("b")])
        await enqueue(launcher, facts("launcher", "accepted", ["c", "d"]))
        await all_sent(own)
        await all_sent(own, service="launcher")
        await own_js.delete_stream("JOBS")
        await own_js.delete_stream("FACTS")
        await ensure(own_js)
        await enqueue(api, [a_message("e")])
        await enqueue(launcher, facts("launcher", "gpus_freed", ["f"]))
        await all_stored(own_js, ["a", "b", "e"], "JOBS")
        await all_stored(own_js, ["c", "d", "f"], "FACTS")

        async def was_told() -> bool:
            return told == ["JOBS"]

        await eventually(was_told, "the service to be told")


async def test_a_loss_that_one_leader_did_not_get_to_is_told_to_the_next(own: Stores, own_js: JetStreamContext) -> None:
    one, other, third = own.service("api"), own.service("api"), own.service("api")
    begun = asyncio.Event()
    told, told_again = tells(other), tells(third)

    @one.on_store_lost
    async def never_ends(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with kept(own):
        async with running(one):
            await enqueue(one, [a_message("a")])
            await all_sent(own)
            await lose(own, None)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await begun.wait()
            await all_stored(own_js, ["a"], "JOBS")  # it is no reason to publish nothing meanwhile
        async with running(other):

            async def forgotten() -> bool:
                return not await own.rows("SELECT 1 FROM api.relayed WHERE subject = ''")

            await eventually(forgotten, "the next leader to be told")
        async with running(third):
            await enqueue(third, [a_message("b")])
            await all_sent(own)
    assert (told, told_again) == (["JOBS"], [])


async def test_an_acknowledgement_from_before_the_loss_takes_no_new_message_away(
    own: Stores, own_js: JetStreamContext, tmp_path: Path
) -> None:
    """The new one has the number of an old one that is being handled while the store is taken back."""
    one, other = own.service("gatekeeper"), own.service("gatekeeper")
    of_one, of_other = Slow(), Slow()
    one.consume("gatekeeper", batch=1)(of_one)
    other.consume("gatekeeper", batch=1)(of_other)
    copy = copy_of(own, tmp_path)
    async with running(one):
        await own_js.publish("jobs.v1.acme.queued", b"old")
        await of_one.handles("old")
        await lose(own, copy)
        async with running(other):
            assert await publish(own_js, b"new") == 1
            await of_other.handles("new")
            of_one.go_on.set()
            await publish(own_js, b"next")
            await publish(own_js, b"next but one")  # each of the two has asked for one more, or will

            async def goes_on() -> bool:
                return len(of_one.bodies) == 2

            await eventually(goes_on, "the next one to be handled")

            async def all_owed() -> bool:
                return bool((await own_js.consumer_info("JOBS", "gatekeeper")).num_ack_pending == 3)

            await eventually(all_owed, "the broker to wait for the new one and both that follow")
            of_one.ends.set()
            of_other.ends.set()


class Slow:
    """A handler that ends when it is told to."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.go_on = asyncio.Event()
        self.ends = asyncio.Event()

    async def __call__(self, deliveries: list[Delivery]) -> None:
        self.bodies += [delivery.body.decode() for delivery in deliveries]
        if not self.ends.is_set():
            waiting = [asyncio.create_task(event.wait()) for event in (self.go_on, self.ends)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            self.go_on.clear()

    async def handles(self, body: str) -> None:
        """Wait until it has begun with this one."""

        async def begun() -> bool:
            return self.bodies[-1:] == [body]

        await eventually(begun, f"{body} to be handled")


async def publish(js: JetStreamContext, body: bytes) -> int:
    """Its number, once the broker is back."""
    numbers: list[int] = []

    async def stored() -> bool:
        with suppress(nats.errors.Error):
            numbers.append((await js.publish("jobs.v1.acme.queued", body, headers={"Nats-Msg-Id": body.decode()})).seq)
        return bool(numbers)

    await eventually(stored, "the broker to be back")
    return numbers[0]
