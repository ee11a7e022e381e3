"""Sends rows to the broker: in one atomic batch, or, where the broker refuses that, one by one."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry import metrics

from shared.runtime.broker import Broker
from shared.runtime.errors import BrokerUnavailable, PublishRefused
from shared.runtime.logs import Log
from shared.runtime.losses import Numbers
from shared.runtime.marks import Sent
from shared.runtime.outbox import UnsentRow

_REFUSED_PAUSE_SECONDS: Final = 5.0

_meter = metrics.get_meter("tidegate")
_refused = _meter.create_counter("tidegate_relay_refused", description="Messages that the broker refused one by one")
_fallbacks = _meter.create_counter("tidegate_relay_batch_fallbacks", description="Batches sent again one by one")


class Sender:
    """Knows which keys have a message that the broker does not take: they wait, and hold nobody else up."""

    def __init__(self, broker: Broker, connection: Callable[[], int], log: Log) -> None:
        """`connection` gives the number of the one that may be used; it raises when nothing may be sent any more."""
        self._broker = broker
        self._connection = connection
        self._log = log
        self._refused_until: dict[str, float] = {}

    def refused_keys(self) -> list[str]:
        """Whose messages are not to be tried now."""
        now = time.monotonic()
        self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        return list(self._refused_until)

    async def send(self, stream: str, rows: Sequence[UnsentRow], numbers: Numbers) -> list[Sent]:
        """Send rows of one stream in their order; those that the broker has."""
        if len(rows) > 1:
            on = self._connection()
            try:
                stored = await self._broker.store_batch([_wire(row) for row in rows], on=on)
            except PublishRefused as refused:
                _fallbacks.add(1, {"stream": stream})
                self._log.info("batch refused, sending one by one", stream=stream, rows=len(rows), reason=str(refused))
            else:
                first = stored.last_seq - len(rows) + 1
                numbers.see(stream, first)
                return [Sent(row.id, row.message.subject, seq) for seq, row in enumerate(rows, start=first)]
        return await self._singly(stream, rows, numbers)

    async def _singly(self, stream: str, rows: Sequence[UnsentRow], numbers: Numbers) -> list[Sent]:
        """As many as the broker takes. A refused row holds back the later rows of its key, and nobody else's."""
        sent: list[Sent] = []
        held: set[str] = set()
        first = ""
        for row in rows:
            if row.message.key in held:
                continue
            try:
                stored = await self._broker.store(*_wire(row), on=self._connection())
            except PublishRefused as refused:
                held.add(row.message.key)
                self._refused_until[row.message.key] = time.monotonic() + _REFUSED_PAUSE_SECONDS
                first = first or f"row {row.id}: {refused}"
            except BrokerUnavailable:
                if not sent:
                    raise
                break  # mark what was acknowledged; the next round meets the same trouble first
            else:
                if not stored.duplicate:
                    numbers.see(stream, stored.last_seq)
                sent.append(Sent(row.id, row.message.subject, stored.last_seq))
        if held:
            _refused.add(len(held), {"stream": stream})
            self._log.error("messages refused, trying again later", stream=stream, count=len(held), first=first)
        return sent


def _wire(row: UnsentRow) -> tuple[str, bytes, Mapping[str, str]]:
    return row.message.subject, row.message.body, {**row.message.headers, "Nats-Msg-Id": row.message.msg_id}
