"""Reads its own ledger again after a restore: what was sent in the lost time stands, whatever the slice remembers.

Ids of lines are the same when they are derived again. So a line with other numbers must not get the id of one that was
sent: whoever has the first would take the second for a repetition.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from services.metering.domain import newest_sent
from services.metering.store import SENT, Store
from shared.contracts.subjects import usage_subject
from shared.contracts.usage import UsageLine, decode_line
from shared.runtime.database import Database
from shared.runtime.logs import Log

NextOn = Callable[[str, str, int], Awaitable[tuple[int, bytes] | None]]
"""`Broker.next_on`: stream, subject, number."""
_AT_ONCE: Final = 500
_OWN: Final = usage_subject("*", "segment")


class Ledger:
    """The stream of lines, as far as this slice does not know it."""

    def __init__(self, db: Database, next_on: NextOn, log: Log) -> None:
        self._db = db
        self._next_on = next_on
        self._log = log

    async def catch_up(self) -> None:
        """Take over every line that was sent after the last one known. Before anything is consumed; safe to repeat."""
        seq = int(await self._db.fetchval(SENT))
        count = 0
        while lines := await self._after(seq):
            async with self._db.transaction() as tx:
                await Store(tx).stand(newest_sent(line for _, line in lines))
            seq = lines[-1][0]
            count += len(lines)
        self._log.info("lines of the lost time stand", count=count)

    async def _after(self, seq: int) -> list[tuple[int, UsageLine]]:
        lines: list[tuple[int, UsageLine]] = []
        while len(lines) < _AT_ONCE and (found := await self._next_on("USAGE", _OWN, seq + 1)) is not None:
            seq, body = found
            lines.append((seq, decode_line(body)))
        return lines
