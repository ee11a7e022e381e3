"""Messages that keep failing: parked in the service's own table, shown, and run again on request."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from shared.runtime.consume import ConsumeLoop
from shared.runtime.database import Database
from shared.runtime.messages import Delivery
from shared.runtime.topology import Consumer

_LIST_LIMIT: Final = 200

PARK: Final = """
INSERT INTO dead_letters (consumer, stream, stream_seq, msg_id, subject, headers, body, error, deliveries)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (consumer, stream_seq, msg_id) WHERE retried_at IS NULL DO NOTHING
"""

LIST: Final = """
SELECT id, consumer, stream, stream_seq, subject, error, deliveries, parked_at, retried_at FROM dead_letters
WHERE id > $1 AND (retried_at IS NULL OR $2) ORDER BY id LIMIT $3
"""

SHOW: Final = """
SELECT id, consumer, stream, stream_seq, subject, error, deliveries, parked_at, retried_at, headers, body
FROM dead_letters WHERE id = $1
"""


class DeadLetters:
    """A service's dead letters, and the queries `dead_letters_ls`, `_show` and `_retry` on them."""

    def __init__(self, database: Database, loops: Mapping[str, ConsumeLoop]) -> None:
        self._database = database
        self._loops = loops

    async def park(self, consumer: Consumer, delivery: Delivery, reason: str) -> None:
        """Keep the message durably with the reason; parked twice it is kept once."""
        await self._database.execute(
            PARK,
            consumer.name,
            consumer.stream,
            delivery.stream_seq,
            delivery.headers.get("Nats-Msg-Id", ""),
            delivery.subject,
            dict(delivery.headers),
            delivery.body,
            reason[:4000],
            delivery.deliveries,
        )

    def queries(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        """The rpc methods by name."""
        return {"dead_letters_ls": self.ls, "dead_letters_show": self.show, "dead_letters_retry": self.retry}

    async def ls(self, request: bytes) -> bytes:
        """`{"after": id, "retried": bool}` (both optional) -> a list without bodies, oldest first."""
        asked = _object(request)
        rows = await self._database.fetch(LIST, int(asked.get("after", 0)), bool(asked.get("retried")), _LIST_LIMIT)
        return orjson.dumps([dict(row) for row in rows])

    async def show(self, request: bytes) -> bytes:
        """`{"id": id}` -> the letter with its headers and body (JSON where it is JSON, else base64)."""
        return orjson.dumps(_shown(await self._letter(_object(request))))

    async def retry(self, request: bytes) -> bytes:
        """`{"id": id}` -> `{"id", "retried", "error"}`: the consumer's handler runs on it now, in this process.

        On success the letter is marked; on an error it stays, with the new reason.
        """
        letter = await self._letter(_object(request))
        loop = self._loops.get(letter["consumer"])
        if loop is None:
            known = ", ".join(self._loops) or "none"
            raise LookupError(f"this service has no consumer {letter['consumer']!r} any more; it has: {known}")
        delivery = Delivery(
            letter["subject"], letter["body"], letter["headers"], letter["deliveries"], letter["stream_seq"]
        )
        try:
            await loop.handler([delivery])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await self._database.execute(
                "UPDATE dead_letters SET error = $2 WHERE id = $1", letter["id"], reason[:4000]
            )
            return orjson.dumps({"id": letter["id"], "retried": False, "error": reason})
        await self._database.execute("UPDATE dead_letters SET retried_at = now() WHERE id = $1", letter["id"])
        return orjson.dumps({"id": letter["id"], "retried": True, "error": None})

    async def _letter(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        number = asked.get("id")
        if not isinstance(number, int):
            raise ValueError(f'{number!r} is no dead letter\'s id; give {{"id": <number from dead_letters_ls>}}')
        row = await self._database.fetchrow(SHOW, number)
        if row is None:
            raise LookupError(f"no dead letter {number} here; dead_letters_ls lists those that are")
        return dict(row)


def _object(request: bytes) -> dict[str, Any]:
    asked = orjson.loads(request or b"{}")
    if not isinstance(asked, dict):
        raise ValueError(f"the request is {type(asked).__name__}; it has to be a JSON object")
    return asked


def _shown(letter: Mapping[str, Any]) -> dict[str, Any]:
    try:
        body, encoding = orjson.loads(letter["body"]), "json"
    except orjson.JSONDecodeError:
        body, encoding = base64.b64encode(letter["body"]).decode(), "base64"
    return {**letter, "body": body, "body_encoding": encoding}
