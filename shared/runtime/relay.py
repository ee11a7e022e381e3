"""Publishes what services enqueued: in order within a key, in atomic batches, one relay per service at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from nats.aio.msg import Msg
from opentelemetry import metrics

from shared.runtime import failpoints
from shared.runtime.broker import Broker, nudge_subject
from shared.runtime.errors import BrokerUnavailable
from shared.runtime.leases import Lease, LeaseLost
from shared.runtime.logs import Log
from shared.runtime.losses import Numbers, StreamIsBehind, what_survived
from shared.runtime.marks import Marks
from shared.runtime.outbox import RelaySource, UnsentRow
from shared.runtime.pace import Pace
from shared.runtime.sending import Sender
from shared.runtime.supervise import keep_running
from shared.runtime.topology import stream_of

BATCH: Final = 500
"""Rows of a round. The broker takes at most 1,000 messages in an atomic batch."""
POLL_SECONDS: Final = 0.5  # for rows of a replica whose nudge was lost
_BROKER_SECONDS: Final = 1.0
_PURGE_SECONDS: Final = 5.0

_meter = metrics.get_meter("tidegate")
_published = _meter.create_counter("tidegate_relay_published", description="Messages acknowledged by the broker")
_unsent_again = _meter.create_counter("tidegate_relay_unsent", description="Messages to send again after a loss")

StoreLost = Callable[[str], Awaitable[None]]


class Relay:
    """Moves rows of a `RelaySource` to the broker, on the replica that has the lease. A row is marked only after its
    acknowledgement, so a message is sent once or more, never lost; the broker drops repeats by their message id."""

    def __init__(
        self, source: RelaySource, marks: Marks, lease: Lease, broker: Broker, *, service: str, log: Log
    ) -> None:
        self._source = source
        self._marks = marks
        self._lease = lease
        self._broker = broker
        self._nudge = nudge_subject(service)
        self._log = log
        self._wake = asyncio.Event()
        self._back = asyncio.Event()
        self._lost = asyncio.Event()
        self._stopping = False
        self._epoch = 0
        self._connection: int | None = None
        """The connection on which the streams were compared with what was acknowledged."""
        self._numbers = Numbers({})
        self._pace = Pace()
        self._sender = Sender(broker, self._connection_to_use, log)
        self._purged_at = time.monotonic()
        self._on_store_lost: list[StoreLost] = []
        broker.on_reconnect(self._after_reconnect)

    def on_store_lost(self, callback: StoreLost) -> None:
        """Have `callback` awaited by the leading replica with the name of a stream that has lost messages."""
        self._on_store_lost.append(callback)

    async def listen(self) -> None:
        """Hear of the commits of other replicas."""
        await self._broker.client.subscribe(self._nudge, cb=self._nudged)

    def nudge(self) -> None:
        """Something was committed: look now, or tell the replica that leads."""
        self._wake.set()

    def stop(self) -> None:
        """Send what is there, then return from `run`."""
        self._stopping = True
        self._wake.set()
        self._back.set()

    async def run(self) -> None:
        """Relay for as long as this replica leads; tell the leader of commits otherwise. Raises when the database goes
        away."""
        while not self._stopping:
            if not self._lease.held:
                await self._follow()
                continue
            telling = asyncio.create_task(self._tell_losses())
            try:
                await self._lead()
            except LeaseLost as error:
                self._log.warning("relay follows", reason=str(error))
                await asyncio.sleep(POLL_SECONDS)  # until the lease is known here to be lost
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def _follow(self) -> None:
        """Until this replica has the lease or is told to stop."""
        taking = asyncio.create_task(self._lease.taken())
        try:
            while not taking.done() and not self._stopping:
                waking = asyncio.create_task(self._wake.wait())
                await asyncio.wait({taking, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if not taking.done() and self._wake.is_set():
                    self._wake.clear()
                    with suppress(BrokerUnavailable):  # then the leader finds the rows when it looks by itself
                        await self._broker.publish(self._nudge, b"", {})
        finally:
            taking.cancel()

    async def _nudged(self, _: Msg) -> None:
        if self._lease.held:
            self._wake.set()

    async def _lead(self) -> None:
        """Returns when told to stop and all is sent, or when another replica may have the lease."""
        assert self._lease.epoch is not None, "it is held"
        self._epoch = self._lease.epoch
        self._connection = None
        waits = False
        while self._leads:
            try:
                if self._connection != self._broker.connections:
                    await self._compare()
                moved = await self.round()
            except StreamIsBehind as behind:
                await self._lose(behind.stream, behind.survived)
                continue
            except BrokerUnavailable as error:
                if self._stopping:
                    return
                if not waits:
                    self._log.warning("relay waits for the broker", error=str(error))
                waits = True
                self._back.clear()
                await _within(_BROKER_SECONDS, self._back)
                continue
            waits = False
            if self._stopping and not moved:
                return
            await self._purge_now_and_then()
            if not moved:
                await _within(POLL_SECONDS, self._wake)
            await self._pace.next()

    @property
    def _leads(self) -> bool:
        return self._lease.held and self._lease.epoch == self._epoch

    async def round(self) -> int:
        """Send the oldest unsent rows; how many were acknowledged."""
        self._wake.clear()
        rows = await self._source.fetch_unsent(BATCH, self._sender.refused_keys())
        self._pace.round_of(len(rows))
        moved = 0
        for stream, part in _by_stream(rows):
            failpoints.reach("publish.before")
            sent = await self._sender.send(stream, part, self._numbers)
            failpoints.reach("publish.after")
            if sent:
                await self._marks.mark(self._epoch, stream, sent)
                self._numbers.remember(stream, sent)
                _published.add(len(sent), {"stream": stream})
                moved += len(sent)
        return moved

    def _connection_to_use(self) -> int:
        """The one that was compared; raises where this replica has woken up too late to publish anything more."""
        if not self._leads:
            raise LeaseLost("another replica may relay by now")
        assert self._connection is not None, "streams are compared first"
        return self._connection

    async def _compare(self) -> None:
        """Before anything is published: does the broker still have what it acknowledged?"""
        connection = self._broker.connections
        self._numbers = Numbers(await self._marks.highest())
        for stream, recorded in self._numbers.highest.items():
            if survived := await what_survived(self._broker, stream, recorded, on=connection):
                await self._lose(stream, survived)
        self._connection = connection

    async def _lose(self, stream: str, survived: Mapping[str, int]) -> None:
        unsent = await self._marks.lose(self._epoch, stream, survived)
        self._numbers.highest[stream].update(survived)
        _unsent_again.add(unsent, {"stream": stream})
        self._log.error(
            "stream has lost messages that it had acknowledged",
            stream=stream,
            survived_up_to=max(survived.values()),
            sending_again=unsent,
        )
        self._lost.set()

    async def _tell_losses(self) -> None:
        """Have the service act on losses, those of an earlier leader that did not get to it included."""
        await keep_running("store lost", self._tell_untold, self._log, asyncio.Event())

    async def _tell_untold(self) -> None:
        while True:
            self._lost.clear()
            for stream in await self._marks.untold():
                for callback in self._on_store_lost:
                    await callback(stream)
                await self._marks.told(self._epoch, stream)
            await self._lost.wait()

    async def _after_reconnect(self) -> None:
        """Look at once at what waited for the broker."""
        self._back.set()
        self._wake.set()

    async def _purge_now_and_then(self) -> None:
        if time.monotonic() - self._purged_at > _PURGE_SECONDS:
            self._purged_at = time.monotonic()
            await self._source.purge()


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for the event, so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _by_stream(rows: Iterable[UnsentRow]) -> list[tuple[str, list[UnsentRow]]]:
    """Rows of one stream together, in their order: an atomic batch has one stream."""
    parts: dict[str, list[UnsentRow]] = {}
    for row in rows:
        parts.setdefault(stream_of(row.message.subject), []).append(row)
    return list(parts.items())
