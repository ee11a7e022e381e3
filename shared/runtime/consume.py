"""Runs a handler on what a consumer delivers: batch by batch, then each message gets its verdict."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

import nats.errors
from nats.aio.msg import Msg
from opentelemetry import metrics

from shared.runtime import failpoints
from shared.runtime.broker import Broker
from shared.runtime.database import Database
from shared.runtime.errors import DatabaseUnavailable, Unavailable
from shared.runtime.logs import Log
from shared.runtime.messages import Delivery
from shared.runtime.pace import Pace
from shared.runtime.pull import Puller, Taken
from shared.runtime.telemetry import batch_span
from shared.runtime.topology import ACK_WAIT_SECONDS, Consumer
from shared.runtime.verdicts import Ack, Nak, Park, Wait, verdict

Handler = Callable[[list[Delivery]], Awaitable[None]]

_ALONE_FROM: Final = 3
"""From this delivery on a message runs alone: whatever stopped its earlier batches, it harms no other."""
_SILENT_LIMIT: Final = 40
"""Deliveries after which a message is parked unheard: each time the process died before it could say why."""
_HEARTBEAT_SECONDS: Final = ACK_WAIT_SECONDS / 3
_LONG_SECONDS: Final = 60.0
_TOKENS, _DELIVERED, _PENDING = 9, 4, 8  # of an acknowledgement subject, see `_delivery`
_MAX_WAITS: Final = 5
"""Losing the database in the same batch so often while it answers pings in between is the batch's own fault."""

_meter = metrics.get_meter("tidegate")
_handled = _meter.create_counter("tidegate_consumer_handled", description="Messages handled and acknowledged")
_failed = _meter.create_counter("tidegate_consumer_failed", description="Messages handed back after an error")
_parked = _meter.create_counter("tidegate_consumer_parked", description="Messages put among the dead letters")
_pending = _meter.create_gauge("tidegate_consumer_pending", description="Messages in the stream not delivered yet")
_seconds = _meter.create_histogram("tidegate_consumer_batch", unit="s", description="Time of one batch in its handler")


class Parks(Protocol):
    """Where messages go that keep failing."""

    async def park(self, consumer: Consumer, delivery: Delivery, reason: str) -> None:
        """Keep it durably; twice the same is kept once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A message in our hands: the broker waits for its verdict."""

    message: Msg
    delivery: Delivery
    connection: int


class ConsumeLoop:
    """Serial: the next batch starts when the last one has its verdicts."""

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        *,
        batch: int,
        broker: Broker,
        database: Database,
        parks: Parks,
        log: Log,
    ) -> None:
        self.consumer = consumer
        self.handler = handler
        self._broker = broker
        self._database = database
        self._parks = parks
        self._log = log
        self._puller = Puller(broker, consumer, batch=batch, log=log)
        self._pace = Pace()
        self._labels = {"consumer": consumer.name}
        self._span = f"consume {consumer.name}"
        self._running: set[_Held] = set()
        self._since = 0.0

    async def run(self) -> None:
        """Consume until `stop`, which hands back at once what was fetched and not begun."""
        await self._puller.start()
        heartbeat = asyncio.create_task(self._keep_alive())
        at_stop = asyncio.create_task(self._hand_back_at_stop())
        try:
            while taken := await self._take():
                self._since = time.monotonic()
                _pending.set(_left(taken[-1].message), self._labels)
                batch = [_Held(message, _delivery(message), connection) for message, connection in taken]
                self._running.update(batch)
                await self._all(batch)
        finally:
            heartbeat.cancel()
            for held in self._running:
                await _tell(held.message.nak())
            unfinished = len(self._running)
            self._running.clear()
            if self._puller.stopping:
                await at_stop
            else:
                at_stop.cancel()
                await self._puller.hand_back()
            self._log.info("consumer stopped", unfinished=unfinished, **self._labels)

    async def _take(self) -> list[Taken]:
        await self._pace.next()
        taken = await self._puller.take()
        self._pace.round_of(len(taken))
        return taken

    async def _hand_back_at_stop(self) -> None:
        await self._puller.stopped.wait()
        returned = await self._puller.hand_back()
        self._log.info("fetched messages handed back", count=returned, **self._labels)

    def stop(self) -> None:
        """Finish the batch that is being handled and take no more."""
        self._puller.stop()

    async def _all(self, batch: Sequence[_Held]) -> None:
        """Everything taken: what failed before runs alone, in its order; the rest together."""
        for held in batch:
            if held.delivery.deliveries >= _ALONE_FROM and not self._puller.stopping:
                await self._one(held)
        fresh = [held for held in batch if held.delivery.deliveries < _ALONE_FROM]
        if len(fresh) == 1:
            await self._one(fresh[0])
        elif fresh:
            await self._group(fresh)

    async def _group(self, batch: Sequence[_Held]) -> None:
        """Together if possible. If that fails, one by one, so that one bad message does not keep the others back."""
        error = await self._handle(batch)
        if error is None:
            await self._acknowledge(batch)
        elif isinstance(error, Unavailable):
            for held in batch:
                await self._settle(held, error)
        else:
            self._log.warning("batch failed, trying one by one", error=repr(error), count=len(batch), **self._labels)
            for held in batch:
                if not self._puller.stopping:
                    await self._one(held)

    async def _one(self, held: _Held) -> None:
        if held.delivery.deliveries > _SILENT_LIMIT:
            times = held.delivery.deliveries
            await self._park(
                held, f"delivered {times} times without an answer: its process died or was stopped each time"
            )
        else:
            await self._settle(held, await self._handle([held]))

    async def _handle(self, batch: Sequence[_Held]) -> Exception | None:
        """Run the handler; sit out the database's absence meanwhile. None when it returned, which means committed."""
        deliveries = [held.delivery for held in batch]
        waits = 0
        while True:
            begun = time.perf_counter()
            try:
                with batch_span(self._span, (delivery.headers for delivery in deliveries)):
                    await self.handler(deliveries)
            except DatabaseUnavailable as error:
                waits += 1
                if self._puller.stopping or waits > _MAX_WAITS:
                    return error
                self._log.warning("database away, batch waits", error=str(error), count=len(batch), **self._labels)
                await self._database_back()
            except Exception as error:
                return error
            else:
                _seconds.record(time.perf_counter() - begun, self._labels)
                return None

    async def _settle(self, held: _Held, error: Exception | None) -> None:
        match verdict(error, held.delivery.deliveries):
            case Ack():
                await self._acknowledge([held])
            case Nak(delay_seconds):
                await self._again(held, delay_seconds, error)
            case Wait():  # only where waiting did not help
                await self._again(held, 1.0, error)
            case Park(reason):
                await self._park(held, reason)
            case never:
                assert_never(never)

    async def _acknowledge(self, batch: Sequence[_Held]) -> None:
        failpoints.reach("ack.before")
        for held in batch:
            await self._ack(held)
        failpoints.reach("ack.after")
        self._running.difference_update(batch)
        _handled.add(len(batch), self._labels)

    async def _ack(self, held: _Held) -> None:
        """Unless the broker went away meanwhile: then it delivers the message again, which handlers bear."""
        if held.connection == self._broker.connections:
            await _tell(held.message.ack())

    async def _again(self, held: _Held, delay_seconds: float, error: Exception | None) -> None:
        await _tell(held.message.nak(delay=delay_seconds))
        self._running.discard(held)
        _failed.add(1, self._labels)
        tries = held.delivery.deliveries
        self._log.warning("message failed, comes again", error=repr(error), deliveries=tries, **self._labels)

    async def _park(self, held: _Held, reason: str) -> None:
        while True:
            try:
                await self._parks.park(self.consumer, held.delivery, reason)
                break
            except DatabaseUnavailable:
                if self._puller.stopping:
                    return  # handed back with the rest
                await self._database_back()
        await self._ack(held)
        self._running.discard(held)
        _parked.add(1, self._labels)
        tries = held.delivery.deliveries
        self._log.error("message parked", reason=reason, deliveries=tries, consumer=self.consumer.name)

    async def _database_back(self) -> None:
        """Return when it answers again, or when the process is to stop."""
        pause = 0.1
        while not self._puller.stopping:
            try:
                return await self._database.ping()
            except DatabaseUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        return None

    async def _keep_alive(self) -> None:
        """Tell the broker that what is held here is still being worked on."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            seconds = time.monotonic() - self._since
            long_held = list(self._running) if seconds > _HEARTBEAT_SECONDS else []
            if long_held and seconds > _LONG_SECONDS:
                self._log.warning("batch takes long", seconds=round(seconds), count=len(long_held), **self._labels)
            for message in [*(held.message for held in long_held), *self._puller.waiting()]:
                await _tell(message.in_progress())


async def _tell(saying: Awaitable[None]) -> None:
    """Say it to the broker; one that is away delivers the message again, which handlers bear."""
    with suppress(nats.errors.Error):
        await saying


def _delivery(message: Msg) -> Delivery:
    """The message with the broker's own numbers, read off the acknowledgement subject.

    `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`; a server in a domain puts
    `<domain>.<account>` before the stream.
    """
    tokens = message.reply.split(".")
    first = _DELIVERED if len(tokens) == _TOKENS else _DELIVERED + 2
    return Delivery(message.subject, message.data, message.headers or {}, int(tokens[first]), int(tokens[first + 1]))


def _left(message: Msg) -> int:
    """How many messages the consumer had still before it when this one was delivered."""
    tokens = message.reply.split(".")
    return int(tokens[_PENDING if len(tokens) == _TOKENS else _PENDING + 2])
