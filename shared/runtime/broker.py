"""NATS for one service: one connection (FastStream's), acknowledged publishes, atomic batches, requests.

A publish that the server's permissions deny gets no answer at all, only a line on the connection's error callback: it
is matched to the waiting publish here, so that it fails at once and by name instead of timing out.
"""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import nats.errors
import orjson
from faststream.nats import NatsBroker
from faststream.nats.broker.broker import UNRECOVERABLE_CONNECT_ERRORS
from faststream.security import SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.runtime.errors import (
    BrokerUnavailable,
    LoginRefused,
    PublishDenied,
    PublishRefused,
    RpcError,
    RpcUnavailable,
)
from shared.runtime.logs import Log
from shared.runtime.stored import Stored, stored
from shared.runtime.telemetry import with_trace
from shared.runtime.topology import CONSUMERS

ERROR_HEADER: Final = "Tidegate-Error"
_DENIED: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)
_UNSENDABLE: Final = (nats.errors.MaxPayloadError, nats.errors.BadSubjectError, nats.errors.BadHeaderError)
_ACK_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_SAY_SECONDS: Final = 2.0


class Broker:
    """One connection that reconnects for ever; every wait on it ends with an answer or `BrokerUnavailable`."""

    def __init__(self, url: str, user: str, password: str, *, service: str, log: Log) -> None:
        self._log = log
        self._user = user
        self._url = url
        self._waiting: dict[str, set[asyncio.Future[Exception]]] = {}
        self._on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self._closing = False
        self.connections = 1
        """The number of the connection: what was asked on an earlier one may not hold any more."""
        self.failed: asyncio.Future[str] | None = None
        """Resolves with the reason when the connection is lost for good (the login was withdrawn)."""
        self.faststream = NatsBroker(
            url,
            security=SASLPlaintext(user, password),
            name=f"tidegate-{service}",
            inbox_prefix=inbox_prefix(user),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type] # annotated int, used in asyncio.sleep
            ping_interval=10,
            apply_types=False,  # bodies stay bytes: no per-message validation
            logger=None,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def connect(self) -> None:
        """Connect, waiting for the server for ever; a refused login raises at once."""
        self.failed = asyncio.get_running_loop().create_future()
        connecting = asyncio.create_task(self.faststream.connect())
        waiting: list[asyncio.Future[Any]] = [connecting, self.failed]
        try:
            while not (await asyncio.wait(waiting, timeout=_SAY_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
                self._log.warning("waiting for the broker", url=self._url)
        finally:
            if not connecting.done():
                await _give_up(connecting)
        if self.failed.done():
            await asyncio.gather(connecting, return_exceptions=True)
            raise LoginRefused(self.failed.result())
        await connecting

    async def serve(self) -> None:
        """Answer queries; the server knows of them when this returns."""
        await self.faststream.start()
        with suppress(nats.errors.Error):  # a broker that has just gone away learns of them when it is back
            await self.client.flush()

    async def close(self) -> None:
        """Send what is still buffered, then close."""
        self._closing = True
        if self.connected:
            with suppress(TimeoutError, nats.errors.Error):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self.faststream.stop()
        if self.faststream._connection is not None:
            # stop() drains, which would wait for a server that is away; FastStream has no plain close
            await self.client.close()

    @property
    def client(self) -> Client:
        """The nats-py connection, for what FastStream does not cover."""
        return self.faststream.connection

    @property
    def connected(self) -> bool:
        """Whether the server is there now."""
        connection = self.faststream._connection  # `connection` raises before the first connect
        return connection is not None and connection.is_connected

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have `callback` awaited whenever the server is back."""
        self._on_reconnect.append(callback)

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Core NATS: at most once, gone if nobody listens."""
        try:
            await self.client.publish(subject, body, headers=dict(headers) or None)
        except _UNSENDABLE as error:
            raise _unsendable(subject, body, error) from error
        except nats.errors.Error as error:
            raise BrokerUnavailable(f"{subject}: {error}") from error

    async def store(self, subject: str, body: bytes, headers: Mapping[str, str], *, on: int | None = None) -> Stored:
        """Publish into the stream that takes `subject` and return once it is on disk; `on` this connection only."""
        return stored(subject, await self._request(subject, body, headers, _ACK_SECONDS, on))

    async def store_batch(
        self, messages: Sequence[tuple[str, bytes, Mapping[str, str]]], *, on: int | None = None
    ) -> Stored:
        """Publish into one stream all or nothing, in order; `PublishRefused` if the broker rejects the batch."""
        batch_id = uuid.uuid4().hex
        for place, (subject, body, headers) in enumerate(messages, start=1):
            marked = {**headers, "Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(place)}
            if place < len(messages):
                self._must_be_connected(subject, on)
                await self.publish(subject, body, marked)
        marked["Nats-Batch-Commit"] = "1"
        return stored(subject, await self._request(subject, body, marked, _ACK_SECONDS, on))

    async def call(self, subject: str, body: bytes, within_seconds: float) -> bytes:
        """Ask; `RpcUnavailable` when nobody answers in time, `RpcError` when the answer is an error."""
        if not self.connected:
            raise RpcUnavailable(f"{subject}: NATS is not connected")
        try:
            reply = await self._request(subject, body, with_trace({}), within_seconds)
        except BrokerUnavailable as error:
            raise RpcUnavailable(str(error)) from error
        if reply.headers and ERROR_HEADER in reply.headers:
            raise RpcError(reply.headers[ERROR_HEADER])
        return bytes(reply.data)

    async def range_of(self, stream: str, *, on: int | None = None) -> tuple[int, int]:
        """The numbers of the stream's first and last message."""
        state = (await self._ask_jetstream(f"STREAM.INFO.{stream}", on))["state"]
        return int(state["first_seq"]), int(state["last_seq"])

    async def last_on(self, stream: str, subject: str, *, on: int | None = None) -> int | None:
        """The number of the last message on the subject; None where there is none."""
        reply = await self._request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", {}, _ACK_SECONDS, on)
        headers = reply.headers or {}
        if headers.get("Status") == "404":
            return None
        return int(headers["Nats-Sequence"])

    async def next_on(self, stream: str, subject: str, seq: int) -> tuple[int, bytes] | None:
        """The first message from number `seq` on that matches the subject, and its number; None where there is none."""
        asked = orjson.dumps({"seq": seq, "next_by_subj": subject})
        reply = await self._request(f"$JS.API.DIRECT.GET.{stream}", asked, {}, _ACK_SECONDS)
        headers = reply.headers or {}
        if headers.get("Status") == "404":
            return None
        return int(headers["Nats-Sequence"]), bytes(reply.data)

    async def lag(self, consumer: str) -> int:
        """How many messages of a consumer of the topology are still to be handled, by whichever replica."""
        info = await self._ask_jetstream(f"CONSUMER.INFO.{CONSUMERS[consumer].stream}.{consumer}")
        return int(info["num_pending"]) + int(info["num_ack_pending"])

    async def _ask_jetstream(self, what: str, on: int | None = None) -> dict[str, Any]:
        """An answer of JetStream's API; `BrokerUnavailable` where it says that there is no such thing (yet)."""
        reply = await self._request(f"$JS.API.{what}", b"", {}, _ACK_SECONDS, on)
        answer: dict[str, Any] = orjson.loads(reply.data)
        if "error" in answer:
            raise BrokerUnavailable(f"{what}: {answer['error'].get('description', answer['error'])}")
        return answer

    def _must_be_connected(self, subject: str, on: int | None) -> None:
        if not self.connected:
            raise BrokerUnavailable(f"{subject}: NATS is not connected")
        if on is not None and on != self.connections:
            raise BrokerUnavailable(f"{subject}: NATS went away and is back")

    async def _request(
        self, subject: str, body: bytes, headers: Mapping[str, str], within_seconds: float, on: int | None = None
    ) -> Msg:
        self._must_be_connected(subject, on)
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(subject.lower(), set())  # nats-py gives complaints in lower case
        waiting.add(failed)
        request = asyncio.ensure_future(
            self.client.request(subject, body, within_seconds, headers=dict(headers) or None)
        )
        try:
            either: list[asyncio.Future[Any]] = [request, failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            return await request
        except _UNSENDABLE as error:
            raise _unsendable(subject, body, error) from error
        except nats.errors.NoRespondersError as error:
            raise BrokerUnavailable(
                f"{subject}: nobody takes it (no service, or no stream with this subject)"
            ) from error
        except nats.errors.TimeoutError as error:
            raise BrokerUnavailable(f"{subject}: no answer within {within_seconds} s") from error
        except nats.errors.Error as error:
            raise BrokerUnavailable(f"{subject}: {error}") from error
        finally:
            request.cancel()
            failed.cancel()
            waiting.discard(failed)
            if not waiting:
                self._waiting.pop(subject.lower(), None)

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if match := _DENIED.search(text):
            what, subject = match.groups()
            self._log.error("denied by NATS", user=self._user, what=what, subject=subject)
            denial = PublishDenied(
                f"NATS user {self._user} may not publish on {subject}; see infra/nats/permissions.py"
            )
            _end(self._waiting.get(subject, ()), denial)
        elif text.removeprefix("nats: ").strip("'").lower() in UNRECOVERABLE_CONNECT_ERRORS:
            # FastStream raises it on from here, which ends nats-py's reconnecting without another word
            self._fail(f"NATS at {self._url} refuses user {self._user}: {text}")
        else:
            self._log.debug("broker connection", error=text)

    async def _on_disconnected(self) -> None:
        if not self._closing:
            self._log.warning("broker lost, reconnecting", url=self._url)
        self.connections += 1
        if (connection := self.faststream._connection) is not None:
            # nats-py would write what is buffered to the next server before anybody can look at that one's streams
            connection._pending, connection._pending_data_size = [], 0
        for waiting in self._waiting.values():
            _end(waiting, BrokerUnavailable("NATS went away before it answered"))

    async def _on_reconnected(self) -> None:
        self._log.info("broker is back", url=self._url)
        for callback in self._on_reconnect:
            await callback()

    async def _on_closed(self) -> None:
        if not self._closing:
            self._fail(f"NATS at {self._url} closed the connection of user {self._user}")

    def _fail(self, reason: str) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(reason)


def nudge_subject(service: str) -> str:
    """Where replicas of a service tell the one that relays of their commits."""
    return f"nudge.v1.{service}"


async def _give_up(connecting: asyncio.Task[Any]) -> None:
    """End nats-py's tries. One that fails in the moment of its cancellation swallows it, and the next follows."""
    while not connecting.done():
        connecting.cancel()
        await asyncio.wait([connecting], timeout=0.1)


def inbox_prefix(user: str) -> str:
    """Where a user's answers arrive: nobody else may listen there."""
    return f"_INBOX_{user}"


def _unsendable(subject: str, body: bytes, error: Exception) -> PublishRefused:
    return PublishRefused(f"{subject}: {error} ({len(body)} bytes of body)")


def _end(waiting: Iterable[asyncio.Future[Exception]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(error)
