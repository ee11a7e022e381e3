"""PostgreSQL for one service: its login role, its schema, short transactions on plain asyncpg.

`jsonb` columns and parameters are Python objects on both sides (never JSON text). Losing the server raises
`DatabaseUnavailable`, whatever statement noticed it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncpg
import orjson

from shared.runtime import failpoints
from shared.runtime.errors import DatabaseUnavailable, LoginRefused
from shared.runtime.outbox import INSERT, Outgoing, insert_arguments

_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
)
_REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
_PING_AFTER_SECONDS: Final = 1.0  # a connection used a moment ago is alive: under load no ping is spent
_COMMAND_TIMEOUT_SECONDS: Final = 60.0  # above the role's statement_timeout: only for a server that is silent
_ACQUIRE_TIMEOUT_SECONDS: Final = 30.0


class _Connection(asyncpg.Connection):  # type: ignore[misc] # asyncpg ships no types
    """A connection that knows when it was last seen alive."""

    __slots__ = ("_used_at",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._used_at = time.monotonic()

    def touch(self) -> None:
        """It was alive just now."""
        self._used_at = time.monotonic()

    def idle_seconds(self) -> float:
        """How long ago it was known to be alive."""
        return time.monotonic() - self._used_at


class Tx:
    """One open transaction."""

    __slots__ = ("_wakes_relay", "conn")

    def __init__(self, conn: asyncpg.Connection) -> None:
        self.conn = conn
        self._wakes_relay = False

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """All rows."""
        return await self.conn.fetch(sql, *args)  # type: ignore[no-any-return] # asyncpg ships no types

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """The first row."""
        return await self.conn.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """The first column of the first row."""
        return await self.conn.fetchval(sql, *args)

    async def execute(self, sql: str, *args: Any) -> str:
        """Run the statement; its command tag, for example `UPDATE 3`."""
        return await self.conn.execute(sql, *args)  # type: ignore[no-any-return] # asyncpg ships no types

    async def enqueue(self, messages: Sequence[Outgoing]) -> None:
        """Have these published, in this order, after the commit; a roll-back forgets them."""
        if messages:
            await self.conn.execute(INSERT, *insert_arguments(messages))
            self.wake_relay()

    def wake_relay(self) -> None:
        """Nudge the relay at commit: for a service whose outbox is a table of its own."""
        self._wakes_relay = True

    @property
    def wakes_relay(self) -> bool:
        """Whether something was enqueued."""
        return self._wakes_relay


class Database:
    """A pool of connections whose search path is the service's schema."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        on_enqueued: Callable[[], None] = lambda: None,
        max_connections: int = 8,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._on_enqueued = on_enqueued
        self._max_connections = max_connections
        self._pool: asyncpg.Pool | None = None

    async def connect(self) -> None:
        """Open the pool; raises `DatabaseUnavailable` while the server is away. Safe to call again."""
        if self._pool is not None:
            return
        pool = asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._max_connections,
            reset=_nothing_to_reset,
            init=_use_json,
            connection_class=_Connection,
            command_timeout=_COMMAND_TIMEOUT_SECONDS,
            timeout=10,
            server_settings=self._server_settings(),
        )
        with connection_errors():
            try:
                self._pool = await pool
            except _REFUSED as error:
                raise LoginRefused(f"PostgreSQL refuses the login for schema {self._schema}: {error}") from error

    async def close(self) -> None:
        """Close all connections; those still in use after 5 s are cut."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(5):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def connection(self) -> asyncpg.Connection:
        """A connection of the caller's own, outside the pool, for a session lock."""
        with connection_errors():
            return await asyncpg.connect(self._dsn, timeout=10, server_settings=self._server_settings())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """READ COMMITTED; commits when the block ends, rolls back when it raises."""
        async with self._lent() as conn:
            tx = Tx(conn)
            async with conn.transaction():
                yield tx
                failpoints.reach("commit.before")
        failpoints.reach("commit.after")
        if tx.wakes_relay:
            self._on_enqueued()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """All rows of one statement in a transaction of its own."""
        async with self._lent() as conn:
            return await conn.fetch(sql, *args)  # type: ignore[no-any-return] # asyncpg ships no types

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """The first row of one statement in a transaction of its own."""
        async with self._lent() as conn:
            return await conn.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """The first column of the first row of one statement in a transaction of its own."""
        async with self._lent() as conn:
            return await conn.fetchval(sql, *args)

    async def execute(self, sql: str, *args: Any) -> str:
        """Run one statement in a transaction of its own; its command tag."""
        async with self._lent() as conn:
            return await conn.execute(sql, *args)  # type: ignore[no-any-return] # asyncpg ships no types

    async def ping(self) -> None:
        """Return if the server answers; raise `DatabaseUnavailable` if not."""
        await self.fetchval("SELECT 1")

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection that was alive within the last second; the loss of it becomes `DatabaseUnavailable`."""
        conn = await self._acquire()
        try:
            yield conn
            conn.touch()
        except _LOST as error:
            raise DatabaseUnavailable(f"PostgreSQL went away: {error}") from error
        except Exception as error:
            if (
                conn.is_closed()
            ):  # asyncpg then raises InterfaceError or a plain OSError, which alone would be ambiguous
                raise DatabaseUnavailable(f"PostgreSQL went away: {error}") from error
            raise
        finally:
            await self._release(conn)

    async def _acquire(self) -> asyncpg.Connection:
        """From the pool, pinged if it was idle; a dead one is replaced once."""
        pool = self._pool
        if pool is None:
            raise DatabaseUnavailable("PostgreSQL is not connected")
        for _ in range(self._max_connections + 1):
            with connection_errors():
                conn = await pool.acquire(timeout=_ACQUIRE_TIMEOUT_SECONDS)
            if conn.idle_seconds() < _PING_AFTER_SECONDS:
                return conn
            try:
                await conn.fetchval("SELECT 1", timeout=5)
            except BaseException as error:
                conn.terminate()
                await self._release(conn)
                if not isinstance(error, (*_LOST, asyncpg.InterfaceError, OSError, TimeoutError)):
                    raise
            else:
                return conn
        raise DatabaseUnavailable("PostgreSQL closes every connection; see its log")

    async def _release(self, conn: asyncpg.Connection) -> None:
        if self._pool is not None:
            await self._pool.release(conn)

    def _server_settings(self) -> dict[str, str]:
        return {"search_path": self._schema, "application_name": f"tidegate-{self._schema}"}


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turns the many ways in which connecting fails into one, a password that is being changed among them."""
    try:
        yield
    except (*_LOST, *_REFUSED, OSError, TimeoutError, asyncpg.InterfaceError) as error:
        raise DatabaseUnavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}") from error


async def _nothing_to_reset(_: asyncpg.Connection) -> None:
    """Every use ends in a commit or roll-back and nothing here changes session state: saves a round trip."""


async def _use_json(conn: asyncpg.Connection) -> None:
    await conn.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=lambda value: b"\x01" + orjson.dumps(value),
        decoder=lambda data: orjson.loads(memoryview(data)[1:]),
    )
