"""A pull subscription that hands over whatever has arrived.

nats-py's `fetch` and FastStream's batch subscriber wait for a full batch or their time-out; this keeps one request
outstanding at the broker, which pushes messages the moment they are stored, and never waits to fill a batch. The
request is renewed when its messages have come, when it expires, and at once after a reconnect.
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.runtime.broker import Broker
from shared.runtime.logs import Log
from shared.runtime.topology import Consumer

_EXPIRES_SECONDS: Final = 2.0
_LATE_SECONDS: Final = 0.5  # an expired request is answered with a status; without one the broker has forgotten it
_REFUSED_PAUSE_SECONDS: Final = 0.25
_DRAIN_SECONDS: Final = 2.0
_EXPIRED: Final = frozenset({"404", "408"})


class Taken(NamedTuple):
    """A message, and the number of the connection on which it came: it can be acknowledged on that one only.

    After a reconnect the same message comes again, or, where the broker's store was lost meanwhile, another one under
    the same number, which an acknowledgement would take away unread.
    """

    message: Msg
    connection: int


class Puller:
    """The unhandled messages of one durable consumer, at most one batch ahead of the handler."""

    def __init__(self, broker: Broker, consumer: Consumer, *, batch: int, log: Log) -> None:
        self._broker = broker
        self._consumer = consumer
        self._batch = batch
        self._log = log
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream}.{consumer.name}"
        self._request = orjson.dumps({"batch": batch, "expires": int(_EXPIRES_SECONDS * 1e9)})
        self._arrived: deque[Taken] = deque()
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._number = 0
        self._missing = 0
        self._renew_at = 0.0
        self._not_before = 0.0
        self.stopped = asyncio.Event()
        """Set by `stop`."""
        self._complained = False
        broker.on_reconnect(self._renew)

    async def start(self) -> None:
        """Listen; nothing is asked for before the first `take`. After `hand_back` it may start again."""
        self._missing = 0
        self._inbox = self._broker.client.new_inbox()
        self._subscription = await self._broker.client.subscribe(f"{self._inbox}.*", cb=self._on_message)

    async def take(self) -> list[Taken]:
        """One message or more, in the order of their arrival, as soon as there is one; none once stopped."""
        while not self._arrived and not self.stopping:
            self._news.clear()
            wait_seconds = await self._ask()
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._news.wait()
            except TimeoutError:
                continue
        if self.stopping:
            return []
        taken = [self._arrived.popleft() for _ in range(min(len(self._arrived), self._batch))]
        if not self._arrived:
            await self._ask()  # the next batch travels while this one is handled
        return taken

    def waiting(self) -> list[Msg]:
        """What has arrived and is not taken: the caller keeps it alive while a handler takes long."""
        return [taken.message for taken in self._arrived]

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self.stopped.is_set()

    def stop(self) -> None:
        """Take no more; `hand_back` follows."""
        self.stopped.set()
        self._news.set()

    async def hand_back(self) -> int:
        """Give what was not taken to another replica at once, without waiting for `ack_wait`; how many that was."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and self._broker.connected:
            with suppress(TimeoutError, nats.errors.Error):  # a broker that went away delivers again by itself
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await subscription.drain()  # type: ignore[no-untyped-call] # nats-py; what is on its way still arrives
        returned = len(self._arrived)
        while self._arrived:
            with suppress(nats.errors.Error):
                await self._arrived.popleft().message.nak()
        return returned

    async def _ask(self) -> float:
        """Have a request outstanding, if that is possible now; in how many seconds to look again."""
        now = time.monotonic()
        if self._missing > 0 and now < self._renew_at:
            return self._renew_at - now
        if now < self._not_before or not self._broker.connected:
            return _REFUSED_PAUSE_SECONDS
        self._number += 1
        self._missing = self._batch
        self._renew_at = now + _EXPIRES_SECONDS + _LATE_SECONDS
        await self._broker.client.publish(self._subject, self._request, reply=f"{self._inbox}.{self._number}")
        return _EXPIRES_SECONDS + _LATE_SECONDS

    async def _renew(self) -> None:
        """The request died with the connection."""
        self._missing = 0
        self._news.set()

    async def _on_message(self, message: Msg) -> None:
        if message.reply:
            self._arrived.append(Taken(message, self._broker.connections))
            self._missing -= 1
            self._complained = False
        else:
            self._on_status(message)
        self._news.set()

    def _on_status(self, message: Msg) -> None:
        """The end of a request: expired, or refused (no such consumer, broker starting or stopping)."""
        headers = message.headers or {}
        if message.subject != f"{self._inbox}.{self._number}":
            return  # an older request's
        self._missing = 0
        if headers.get("Status") not in _EXPIRED:
            self._not_before = time.monotonic() + _REFUSED_PAUSE_SECONDS
            if not self._complained:
                self._complained = True
                reason = f"{headers.get('Status')} {headers.get('Description', 'no such consumer')}"
                self._log.warning("broker refuses to deliver", consumer=self._consumer.name, reason=reason)
