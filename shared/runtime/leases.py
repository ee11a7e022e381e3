"""What one replica of a service does for all: a lease is a name in the table `leases` with one holder at a time.

The database's clock says until when. A holder renews every second; one that was killed or stopped is followed by
another replica within 5 s. A lease that is held is no fence: a process may be stopped right after it looked. What must
not be written late is written in a transaction that calls `check`.
"""

import asyncio
import time
from typing import Final

import asyncpg

from shared.runtime.database import Database, Tx, connection_errors
from shared.runtime.errors import Retryable
from shared.runtime.logs import Log
from shared.runtime.supervise import pause_unless

TTL_SECONDS: Final = 3.0
_TRY_SECONDS: Final = 0.5
_RENEW_SECONDS: Final = 0.9  # with a look every half second: once a second
_MARGIN_SECONDS: Final = 0.2  # for clocks that run at different speeds, and for what is done right after looking
_ANSWER_SECONDS: Final = 5.0

_DECLARE: Final = """
INSERT INTO leases (name, owner, epoch, until) SELECT name, '', 0, '-infinity' FROM unnest($1::text[]) AS name
ON CONFLICT DO NOTHING
"""

# Whoever has checked the lease in a transaction that is still open is waited for, without blocking: by the next try.
_TAKE: Final = """
WITH free AS (
    SELECT name FROM leases WHERE name = $1 AND (until < clock_timestamp() OR owner = $2 AND $3)
    FOR UPDATE SKIP LOCKED
)
UPDATE leases SET owner = $2, epoch = epoch + 1, until = clock_timestamp() + make_interval(secs => $4)
FROM free WHERE leases.name = free.name RETURNING epoch
"""

_RENEW: Final = """
UPDATE leases SET until = clock_timestamp() + make_interval(secs => $4) WHERE name = $1 AND owner = $2 AND epoch = $3
RETURNING true
"""

_RELEASE: Final = "UPDATE leases SET until = clock_timestamp() WHERE name = $1 AND owner = $2 AND epoch = $3"

# FOR KEY SHARE: a takeover (FOR UPDATE) waits for the end of the transaction, a renewal does not. A process that is
# stopped inside such a transaction loses it when the lease runs out, so that it holds nobody up for longer.
_CHECK: Final = """
WITH short AS (SELECT set_config('idle_in_transaction_session_timeout', $4, true))
SELECT true FROM leases, short WHERE name = $1 AND owner = $2 AND epoch = $3 FOR KEY SHARE OF leases
"""


class LeaseLost(Retryable):
    """Another replica may have the lease: what was about to be written is not."""


class Lease:
    """One name; at most one replica holds it. The service keeps it alive from its start to its clean end."""

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self.epoch: int | None = None
        """Rises with every new holder; None while this replica is known not to be the holder."""
        self._until = self._renewed_at = 0.0
        self._had = False
        self._taken = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether this replica has it now, by its own clock: never true once another one may have it."""
        return self.epoch is not None and time.monotonic() < self._until

    async def taken(self) -> None:
        """Return once this replica has it."""
        while not self.held:
            self._taken.clear()
            await self._taken.wait()

    async def check(self, tx: Tx, epoch: int | None = None) -> None:
        """Have the transaction commit only under this lease; raise `LeaseLost` where another replica has it.

        It may come first or last. From then on the transaction may idle for `TTL_SECONDS` at a time, so it comes last
        where much is computed between the statements. With `epoch`, the one in which the work began: a lease that was
        lost and taken again in between does not do.
        """
        epoch = self.epoch if epoch is None else epoch
        idle_limit = f"{TTL_SECONDS:g}s"
        if epoch is None or not await tx.fetchval(_CHECK, self.name, self.owner, epoch, idle_limit):
            raise LeaseLost(f"replica {self.owner} does not have the lease {self.name!r} any more")

    async def keep(self, connection: asyncpg.Connection) -> bool:
        """Renew it when it is time to, or try to take it; whether it was taken or lost by that."""
        now = time.monotonic()
        if self.epoch is None:
            arguments: tuple[object, ...] = (self.name, self.owner, not self._had, TTL_SECONDS)
            self.epoch = await connection.fetchval(_TAKE, *arguments, timeout=_ANSWER_SECONDS)
            if self.epoch is None:
                return False
            self._had = True
            self._extend(now)
            return True
        if now - self._renewed_at < _RENEW_SECONDS:
            return False
        arguments = (self.name, self.owner, self.epoch, TTL_SECONDS)
        if await connection.fetchval(_RENEW, *arguments, timeout=_ANSWER_SECONDS):
            self._extend(now)
            return False
        self.epoch = None
        return True

    def _extend(self, asked_at: float) -> None:
        """The database counts from a later moment than the asking."""
        self._renewed_at = asked_at
        self._until = asked_at + TTL_SECONDS - _MARGIN_SECONDS
        self._taken.set()

    async def release(self, connection: asyncpg.Connection) -> None:
        """Let another replica have it at once."""
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            await connection.execute(_RELEASE, self.name, self.owner, epoch, timeout=_ANSWER_SECONDS)


class Leases:
    """All leases of one replica, kept on a connection of their own: a busy pool does not lose them."""

    def __init__(self, database: Database, owner: str, log: Log) -> None:
        self._database = database
        self._owner = owner
        self._log = log
        self._leases: dict[str, Lease] = {}
        self._stop = asyncio.Event()

    def declare(self, name: str) -> Lease:
        """A lease that is tried for from the start of `run` on."""
        if name in self._leases:
            raise ValueError(f"lease {name!r} is declared twice")
        lease = self._leases[name] = Lease(name, self._owner)
        return lease

    async def run(self) -> None:
        """Take, renew and at `stop` release. Raises when the database goes away; what was held may be held still."""
        connection = await self._database.connection()
        try:
            with connection_errors():
                await connection.execute(_DECLARE, list(self._leases), timeout=_ANSWER_SECONDS)
                while not self._stop.is_set():
                    for lease in self._leases.values():
                        if await lease.keep(connection):
                            self._say(lease)
                    await pause_unless(self._stop, _TRY_SECONDS)
                for lease in self._leases.values():
                    await lease.release(connection)
        finally:
            connection.terminate()

    def stop(self) -> None:
        """Release them all; `run` returns after that."""
        self._stop.set()

    def _say(self, lease: Lease) -> None:
        if lease.epoch is None:
            self._log.warning("lease lost", lease=lease.name, replica=self._owner)
        else:
            self._log.info("lease taken", lease=lease.name, replica=self._owner, epoch=lease.epoch)
