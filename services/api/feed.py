"""The tail of the tenants' logs, read once per process for all open streams.

Whoever commits here wakes the poller at once; what other replicas commit is seen at the next poll. A stream that falls
behind what is kept in memory reads on from the database.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from services.api.reads import Logged
from shared.runtime.database import Database

POLL_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.01  # what is committed within it is read together
_KEPT: Final = 1000
_READ: Final = 1000

# What came after each tenant's last known position; positions have no gap and commit in order, so nothing is skipped.
NEW: Final = """
SELECT event.tenant, event.job, event.epoch, event.seq, event.position, event.type, event.body
FROM unnest($1::text[], $2::bigint[]) AS known (tenant, position)
CROSS JOIN LATERAL (
    SELECT * FROM events WHERE events.tenant = known.tenant AND events.position > known.position
    ORDER BY events.position LIMIT $3
) AS event ORDER BY event.tenant, event.position
"""
POSITION: Final = "SELECT position FROM tenants WHERE name = $1"
AFTER: Final = """
SELECT job, epoch, seq, position, type, body FROM events WHERE tenant = $1 AND position > $2 ORDER BY position LIMIT $3
"""


class Tail:
    """The end of one tenant's log, shared by its streams."""

    def __init__(self, tenant: str, position: int) -> None:
        self.tenant = tenant
        self.position = position
        """The last one that was read."""
        self.streams = 0
        self._begins = position
        self._kept: deque[Logged] = deque(maxlen=_KEPT)
        self._changed = asyncio.Event()

    def add(self, logged: Logged) -> None:
        """The next event."""
        if len(self._kept) == _KEPT:
            self._begins = self._kept[0].position
        self._kept.append(logged)
        self.position = logged.position

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def after(self, position: int) -> list[Logged] | None:
        """What is kept after `position`; None where that begins earlier than what is kept."""
        if position < self._begins:
            return None
        new = self.position - position
        return list(self._kept)[-new:] if new > 0 else []

    async def changed(self, seconds: float) -> bool:
        """Whether something came within that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


class Feed:
    """Tails of those tenants to whom somebody listens."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tails: dict[str, Tail] = {}
        self._wake = asyncio.Event()
        self.closing = False

    def grown(self, tenants: Iterable[str]) -> None:
        """These tenants' logs grew in a transaction of this process."""
        if any(tenant in self._tails for tenant in tenants):
            self._wake.set()

    def close(self) -> None:
        """End all streams: the process is to stop."""
        self.closing = True
        self._wake.set()
        for tail in self._tails.values():
            tail.wake()

    @asynccontextmanager
    async def tail(self, tenant: str) -> AsyncIterator[Tail]:
        """The tenant's tail: what commits after this begins will be in it."""
        tail = self._tails.get(tenant)
        if tail is None:
            tail = self._tails.setdefault(tenant, Tail(tenant, await self.position(tenant)))
            self._wake.set()
        tail.streams += 1
        try:
            yield tail
        finally:
            tail.streams -= 1
            if tail.streams == 0 and self._tails.get(tenant) is tail:
                del self._tails[tenant]

    async def position(self, tenant: str) -> int:
        """The position of the tenant's last event."""
        return int(await self._database.fetchval(POSITION, tenant) or 0)

    async def read(self, tenant: str, after: int) -> list[Logged]:
        """From the database, for whoever is behind."""
        rows = await self._database.fetch(AFTER, tenant, after, _READ)
        return [Logged(*row) for row in rows]

    async def poll(self) -> None:
        """One round: wait for a wake or the time, then read what is new for all."""
        try:
            async with asyncio.timeout(POLL_SECONDS if self._tails else 5.0):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        tails = list(self._tails.values())
        if not tails or self.closing:
            return
        rows = await self._database.fetch(
            NEW, [tail.tenant for tail in tails], [tail.position for tail in tails], _READ
        )
        grown: dict[str, int] = {}
        for tenant, *event in rows:
            grown[tenant] = grown.get(tenant, 0) + 1
            tail = self._tails.get(tenant)
            if tail is not None and event[3] > tail.position:
                tail.add(Logged(*event))
        for tenant, count in grown.items():
            if tenant in self._tails:
                self._tails[tenant].wake()
            if count == _READ:
                self._wake.set()
        await asyncio.sleep(_PAUSE_SECONDS)
