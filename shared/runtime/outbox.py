"""What a service wants published: rows written in the transaction that caused them, sent by the relay afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from shared.runtime.telemetry import with_trace
from shared.runtime.topology import stream_of

if TYPE_CHECKING:
    from shared.runtime.database import Database

KEEP_SENT_SECONDS: Final = 3600  # longer than the broker's duplicate window, so that a lost stream can be filled again
_PURGE_ROWS: Final = 10_000  # per call, a few times what a busy service sends between two calls


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish once its transaction is committed."""

    subject: str
    msg_id: str
    """Becomes `Nats-Msg-Id`: within the duplicate window the broker keeps one message of an id."""
    key: str
    """Messages of one key are published in the order of their rows; usually the job's id."""
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse here what the relay could never send."""
        stream_of(self.subject)
        if not self.msg_id or not self.key:
            raise ValueError(
                f"message for {self.subject}: msg_id {self.msg_id!r} and key {self.key!r} must not be empty"
            )


@dataclass(frozen=True, slots=True)
class UnsentRow:
    """A committed message that is not known to be published."""

    id: int
    message: Outgoing


class RelaySource(Protocol):
    """Where the relay finds what to send. A service whose event log is its outbox brings its own: a table that has the
    columns `id`, `sent_at` and `stream_seq` of `outbox` too."""

    @property
    def table(self) -> str:
        """The table of the rows."""

    @property
    def subject(self) -> str:
        """A row's subject, as an expression of SQL."""

    async def fetch_unsent(self, limit: int, without: Sequence[str]) -> Sequence[UnsentRow]:
        """The oldest unsent rows in ascending id, which within a key is the order of commits; none of the keys in
        `without`."""

    async def purge(self) -> None:
        """Drop, in bulk, what is no longer needed for sending again."""


INSERT: Final = """
INSERT INTO outbox (key, subject, msg_id, headers, body)
SELECT key, subject, msg_id, headers, body
FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bytea[])
     WITH ORDINALITY AS row (key, subject, msg_id, headers, body, place)
ORDER BY place
"""

FETCH_UNSENT: Final = """
SELECT id, key, subject, msg_id, headers, body FROM outbox
WHERE sent_at IS NULL AND key <> ALL ($2::text[]) ORDER BY id LIMIT $1
"""

PURGE: Final = """
DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE sent_at < now() - make_interval(secs => $1) ORDER BY sent_at LIMIT $2
)
"""


def insert_arguments(messages: Sequence[Outgoing]) -> tuple[list[Any], ...]:
    """The arrays for `INSERT`, each message carrying the context of the span that is current now."""
    return (
        [message.key for message in messages],
        [message.subject for message in messages],
        [message.msg_id for message in messages],
        [dict(with_trace(message.headers)) for message in messages],
        [message.body for message in messages],
    )


class OutboxTable:
    """The table `outbox` that `create_outbox` makes in a service's schema."""

    table = "outbox"
    subject = "subject"

    def __init__(self, database: "Database") -> None:
        self._database = database

    async def fetch_unsent(self, limit: int, without: Sequence[str]) -> list[UnsentRow]:
        """The oldest unsent rows in ascending id."""
        rows = await self._database.fetch(FETCH_UNSENT, limit, without)
        return [
            UnsentRow(row["id"], Outgoing(row["subject"], row["msg_id"], row["key"], row["body"], row["headers"]))
            for row in rows
        ]

    async def purge(self) -> None:
        """Drop rows that were sent more than an hour ago."""
        await self._database.execute(PURGE, KEEP_SENT_SECONDS, _PURGE_ROWS)
