"""What the broker has acknowledged, as the database remembers it: marks on rows, and the highest number per subject.

Every write here is guarded by the lease of the relay: one that lost it marks nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.runtime.database import Database
from shared.runtime.leases import Lease, LeaseLost
from shared.runtime.outbox import KEEP_SENT_SECONDS, RelaySource
from shared.runtime.topology import STREAMS

_UNSEND_ROWS: Final = 20_000  # a second or two; a statement may take 20 s

_LED: Final = "SELECT name FROM leases WHERE name = $1 AND owner = $2 AND epoch = $3 FOR KEY SHARE"

# Losing a mark only sends a message twice, so it need not wait for the disk.
_MARK: Final = """
WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)), led AS ({led}),
marked AS (
    UPDATE {table} SET sent_at = now(), stream_seq = row.seq
    FROM unnest($4::bigint[], $5::bigint[]) AS row (id, seq), led, quick
    WHERE {table}.id = row.id AND {table}.id = ANY ($4::bigint[]) AND {table}.sent_at IS NULL
), highest AS (
    INSERT INTO relayed (stream, subject, last_seq)
    SELECT $6, row.subject, row.seq FROM unnest($7::text[], $8::bigint[]) AS row (subject, seq), led
    ON CONFLICT (stream, subject) DO UPDATE SET last_seq = greatest(relayed.last_seq, excluded.last_seq)
)
SELECT true FROM led
"""

# A dot behind both: `facts.v1.stager.staged` is no beginning of `facts.v1.stager.staged_again`.
_UNSEND: Final = """
WITH led AS ({led}), lost AS (
    SELECT {table}.ctid AS place
    FROM {table}, unnest($4::text[], $5::bigint[]) AS survived (prefix, seq), led
    WHERE sent_at > now() - make_interval(secs => $6) AND stream_seq > survived.seq
      AND starts_with({subject} || '.', survived.prefix || '.')
    LIMIT $7
), unsent AS (
    UPDATE {table} SET sent_at = NULL, stream_seq = NULL WHERE ctid = ANY (ARRAY (SELECT place FROM lost))
    RETURNING 1
)
SELECT (SELECT count(*) FROM unsent) FROM led
"""

# The subject '' remembers that the service was not told yet of a stream's loss.
_CORRECT: Final = """
WITH led AS ({led}), corrected AS (
    UPDATE relayed SET last_seq = row.seq FROM unnest($5::text[], $6::bigint[]) AS row (subject, seq), led
    WHERE relayed.stream = $4 AND relayed.subject = row.subject
), untold AS (
    INSERT INTO relayed (stream, subject, last_seq) SELECT $4, '', 0 FROM led ON CONFLICT DO NOTHING
)
SELECT true FROM led
"""

_TOLD: Final = "DELETE FROM relayed WHERE stream = $1 AND subject = ''"


@dataclass(frozen=True, slots=True)
class Sent:
    """A row that the broker has, under this number in its stream."""

    row: int
    subject: str
    seq: int


class Marks:
    """The marks of one service's rows, for the replica that leads its relay."""

    def __init__(self, database: Database, source: RelaySource, lease: Lease) -> None:
        self._database = database
        self._lease = lease
        words = {"table": source.table, "subject": source.subject, "led": _LED}
        self._mark, self._unsend, self._correct = (sql.format(**words) for sql in (_MARK, _UNSEND, _CORRECT))
        self._count = f"SELECT count(*) FROM {source.table} WHERE sent_at IS NULL"

    async def count_unsent(self) -> int:
        """How many rows the broker is not known to have."""
        return int(await self._database.fetchval(self._count))

    async def highest(self) -> dict[str, dict[str, int]]:
        """By stream: the number of the last message acknowledged, per subject that is kept track of."""
        rows = await self._database.fetch("SELECT stream, subject, last_seq FROM relayed WHERE subject <> ''")
        streams: dict[str, dict[str, int]] = {}
        for row in rows:
            streams.setdefault(row["stream"], {})[row["subject"]] = row["last_seq"]
        return streams

    async def untold(self) -> list[str]:
        """The streams whose loss the service was not told of yet."""
        rows = await self._database.fetch("SELECT stream FROM relayed WHERE subject = ''")
        return [row["stream"] for row in rows]

    async def mark(self, epoch: int, stream: str, sent: Sequence[Sent]) -> None:
        """Remember in one statement that the broker has these."""
        highest: dict[str, int] = {}
        for one in sent:
            tracked = tracked_subject(stream, one.subject)
            highest[tracked] = max(one.seq, highest.get(tracked, 0))
        await self._led(
            self._mark,
            epoch,
            [one.row for one in sent],
            [one.seq for one in sent],
            stream,
            list(highest),
            list(highest.values()),
        )

    async def lose(self, epoch: int, stream: str, survived: Mapping[str, int]) -> int:
        """Have everything sent again that went to these subjects above what survived, within the last hour, and
        remember that the service has to be told; how many rows that are."""
        prefixes = [subject.removesuffix(".>") for subject in survived]
        numbers = list(survived.values())
        unsent = 0
        while page := await self._led(self._unsend, epoch, prefixes, numbers, KEEP_SENT_SECONDS, _UNSEND_ROWS):
            unsent += page
        await self._led(self._correct, epoch, stream, list(survived), numbers)
        return unsent

    async def told(self, epoch: int, stream: str) -> None:
        """The service knows of the loss of this stream."""
        async with self._database.transaction() as tx:
            await self._lease.check(tx, epoch)
            await tx.execute(_TOLD, stream)

    async def _led(self, sql: str, epoch: int, *arguments: object) -> int:
        answer = await self._database.fetchval(sql, self._lease.name, self._lease.owner, epoch, *arguments)
        if answer is None:
            raise LeaseLost("another replica relays: nothing was marked")
        return int(answer)


def tracked_subject(stream: str, subject: str) -> str:
    """Under which subject the highest number is kept: its own, or the stream's whole where nobody else publishes."""
    data = STREAMS[stream]
    return data.subjects[0] if data.one_publisher else subject
