"""Publishes what services enqueued: in order within a key, in atomic batches, one relay per service at a time."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import asyncpg
from opentelemetry import metrics

from shared.runtime import failpoints
from shared.runtime.broker import Broker
from shared.runtime.database import Database, connection_errors
from shared.runtime.errors import BrokerUnavailable, PublishRefused
from shared.runtime.logs import Log
from shared.runtime.outbox import RelaySource, UnsentRow
from shared.runtime.topology import stream_of

BATCH: Final = 500
"""Rows of a round. The broker takes at most 1,000 messages in an atomic batch."""
POLL_SECONDS: Final = 0.5  # for rows of other replicas, whose commits nudge their own process only
_TAKEOVER_SECONDS: Final = 1.0
_BROKER_SECONDS: Final = 1.0
_PURGE_SECONDS: Final = 5.0
_REFUSED_PAUSE_SECONDS: Final = 5.0
_TRY_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"

_meter = metrics.get_meter("tidegate")
_published = _meter.create_counter("tidegate_relay_published", description="Messages acknowledged by the broker")
_refused = _meter.create_counter("tidegate_relay_refused", description="Messages that the broker refused one by one")
_fallbacks = _meter.create_counter("tidegate_relay_batch_fallbacks", description="Batches sent again one by one")


class Relay:
    """Moves rows of a `RelaySource` to the broker. A row is marked only after its acknowledgement, so a message is sent
    once or more, never lost; the broker drops repeats by their message id."""

    def __init__(self, source: RelaySource, database: Database, broker: Broker, *, service: str, log: Log) -> None:
        self._source = source
        self._database = database
        self._broker = broker
        self._service = service
        self._log = log
        self._wake = asyncio.Event()
        self._back = asyncio.Event()
        self._stopping = False
        self._acknowledged: dict[str, int] = {}
        self._refused_until: dict[int, float] = {}
        self._purged_at = time.monotonic()
        broker.on_reconnect(self._after_reconnect)

    def nudge(self) -> None:
        """Something was committed: look now."""
        self._wake.set()

    def stop(self) -> None:
        """Send what is there, then return from `run`."""
        self._stopping = True
        self._wake.set()
        self._back.set()

    async def run(self) -> None:
        """Relay for as long as this process leads; wait for the lead otherwise. Raises when the database goes away."""
        while not self._stopping:
            lock = await self._database.connection()
            try:
                await self._lead(lock)
            finally:
                lock.terminate()

    async def _lead(self, lock: asyncpg.Connection) -> None:
        """Returns when told to stop and all is sent, or when the lead is lost: it ends with the lock's connection."""
        with connection_errors():
            while not await lock.fetchval(_TRY_LOCK, f"tidegate.relay.{self._service}"):
                if await self._stopped_within(_TAKEOVER_SECONDS):
                    return
        waits = False
        while not lock.is_closed():
            try:
                moved = await self.round()
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

    async def round(self) -> int:
        """Send the oldest unsent rows; how many were acknowledged."""
        self._wake.clear()
        now = time.monotonic()
        self._refused_until = {row: until for row, until in self._refused_until.items() if until > now}
        rows = await self._source.fetch_unsent(BATCH + len(self._refused_until))
        held = {row.message.key for row in rows if row.id in self._refused_until}
        rows = [row for row in rows if row.message.key not in held]
        moved = 0
        for stream, part in _by_stream(rows):
            failpoints.reach("publish.before")
            sent = await self._send(stream, part)
            failpoints.reach("publish.after")
            if sent:
                await self._source.mark_sent(sent)
                _published.add(len(sent), {"stream": stream})
                moved += len(sent)
        return moved

    async def _send(self, stream: str, rows: Sequence[UnsentRow]) -> list[int]:
        """The ids of the rows that the broker has."""
        if len(rows) > 1:
            try:
                stored = await self._broker.store_batch([_wire(row) for row in rows])
            except PublishRefused as refused:
                _fallbacks.add(1, {"stream": stream})
                self._log.info("batch refused, sending one by one", stream=stream, rows=len(rows), reason=str(refused))
            else:
                self._acknowledged[stream] = stored.last_seq
                return [row.id for row in rows]
        return await self._send_singly(stream, rows)

    async def _send_singly(self, stream: str, rows: Sequence[UnsentRow]) -> list[int]:
        """As many as the broker takes. A refused row holds back the later rows of its key, and nobody else's."""
        sent: list[int] = []
        held: set[str] = set()
        first = ""
        for row in rows:
            if row.message.key in held:
                continue
            try:
                stored = await self._broker.store(*_wire(row))
            except PublishRefused as refused:
                held.add(row.message.key)
                self._refused_until[row.id] = time.monotonic() + _REFUSED_PAUSE_SECONDS
                first = first or f"row {row.id}: {refused}"
            except BrokerUnavailable:
                if not sent:
                    raise
                break  # mark what was acknowledged; the next round meets the same trouble first
            else:
                self._acknowledged[stream] = max(stored.last_seq, self._acknowledged.get(stream, 0))
                sent.append(row.id)
        if held:
            _refused.add(len(held), {"stream": stream})
            self._log.error("messages refused, trying again later", stream=stream, count=len(held), first=first)
        return sent

    async def _after_reconnect(self) -> None:
        """Notice a stream that has lost what it had acknowledged; send at once what waited for the broker."""
        self._comparing = asyncio.ensure_future(self._compare_streams())
        self._back.set()

    async def _compare_streams(self) -> None:
        with suppress(BrokerUnavailable):  # away again: the next reconnect compares once more
            await self._compare()

    async def _compare(self) -> None:
        for stream, acknowledged in list(self._acknowledged.items()):
            last = await self._broker.last_seq(stream)
            if last < acknowledged:
                self._log.error(
                    "stream is behind what it acknowledged", stream=stream, last=last, expected=acknowledged
                )
                self._acknowledged[stream] = last

    async def _purge_now_and_then(self) -> None:
        if time.monotonic() - self._purged_at > _PURGE_SECONDS:
            self._purged_at = time.monotonic()
            await self._source.purge()

    async def _stopped_within(self, seconds: float) -> bool:
        self._wake.clear()
        await _within(seconds, self._wake)
        return self._stopping


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


def _wire(row: UnsentRow) -> tuple[str, bytes, Mapping[str, str]]:
    return row.message.subject, row.message.body, {**row.message.headers, "Nats-Msg-Id": row.message.msg_id}
