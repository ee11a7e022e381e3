"""One replica at a time has a lease; one that lost it writes nothing under it, however late it wakes up."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from shared.runtime import leases
from shared.runtime.database import Database
from shared.runtime.leases import Lease, LeaseLost
from tests.integration.runtime.stores import Stores, eventually, running
from tests.patience import PATIENCE_SECONDS

PROGRAM = Path(__file__).parent / "leaseholder.py"
ROOT = Path(__file__).parents[3]


async def held(lease: Lease) -> None:
    """Wait until this replica has it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await lease.taken()


async def holder(stores: Stores, name: str = "observe") -> str | None:
    """Who holds it, by the database's clock."""
    rows = await stores.rows(f"SELECT owner FROM api.leases WHERE name = '{name}' AND until > clock_timestamp()")
    return rows[0]["owner"] if rows else None


async def wait_for_holder(stores: Stores, name: str) -> None:
    async def has_it() -> bool:
        return await holder(stores) == name

    await eventually(has_it, f"{name} to have the lease")


@asynccontextmanager
async def a_process(stores: Stores, folder: Path, replica: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A leaseholder of its own; killed at the end."""
    environ = {**os.environ, **stores.environ("api"), "PYTHONPATH": str(ROOT), "TIDEGATE_REPLICA": replica}
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(folder), env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_one_replica_has_it_and_hands_it_over_at_its_clean_end(stores: Stores) -> None:
    one, other = stores.service("api", replica="one"), stores.service("api", replica="other")
    of_one, of_other = one.lease("observe"), other.lease("observe")
    async with running(other):
        async with running(one):
            await eventually(lambda: holder(stores), "one of them to have the lease")
            first, second = (of_one, of_other) if await holder(stores) == "one" else (of_other, of_one)
            await held(first)
            assert not second.held
            assert second.epoch is None
            async with one.db.transaction() as tx:
                with pytest.raises(LeaseLost, match="does not have the lease 'observe'"):
                    await second.check(tx)
                await first.check(tx)
        await held(of_other)
        assert not of_one.held
        assert of_one.epoch is None


async def test_another_replica_follows_one_that_was_stopped_inside_a_transaction(
    stores: Stores, tmp_path: Path
) -> None:
    """It had checked the lease in it: it keeps nobody waiting, and does not commit late. A kill is less than that."""
    other = stores.service("api", replica="other")
    lease = other.lease("observe")
    async with a_process(stores, tmp_path, "one") as process:
        await wait_for_holder(stores, "one")
        (tmp_path / "write").touch()
        await there(tmp_path / "checked", "it to check the lease")
        [before] = await stores.rows("SELECT epoch FROM api.leases WHERE name = 'observe'")
        async with running(other):
            process.send_signal(signal.SIGSTOP)
            await held(lease)
            assert lease.epoch == before["epoch"] + 1
            (tmp_path / "commit").touch()
            process.send_signal(signal.SIGCONT)
            await there(tmp_path / "outcome", "the outcome of its transaction")
            assert (tmp_path / "outcome").read_text() in ("LeaseLost", "DatabaseUnavailable")
    assert not await stores.rows("SELECT 1 FROM api.outbox")


async def there(file: Path, what: str) -> None:
    """Wait for a file with something in it."""

    async def is_there() -> bool:
        return written(file)

    await eventually(is_there, what)


def written(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


async def test_a_restarted_replica_takes_its_own_over_at_once_and_in_a_new_epoch(stores: Stores) -> None:
    async with a_lease(stores, "one") as one, a_lease(stores, "one") as again:
        assert await one.look()
        assert await again.look()
        assert (one.lease.epoch, again.lease.epoch) == (1, 2)
        with pytest.raises(LeaseLost):
            await one.check()
        await again.check()
        assert await one.look(), "it notices"
        assert not await one.look(), "and does not take it back by name"
        assert (one.lease.epoch, again.lease.held) == (None, True)


async def test_work_begun_in_an_earlier_epoch_is_refused(stores: Stores) -> None:
    """Lost and taken again in between: another replica may have worked meanwhile."""
    async with a_lease(stores, "one") as one, a_lease(stores, "other") as other:
        await one.look()
        await expire(stores)
        assert await other.look()
        assert await one.look(), "it notices"
        await expire(stores)
        assert await one.look()
        assert one.lease.epoch == 3
        await one.check()
        with pytest.raises(LeaseLost):
            await one.check(1)


async def test_is_not_held_by_its_own_clock_once_another_one_may_have_it(stores: Stores) -> None:
    async with a_lease(stores, "one") as one:
        await one.look()
        assert one.lease.held
        left_here = one.lease._until - time.monotonic()
        [row] = await stores.rows("SELECT extract(epoch FROM until - clock_timestamp())::float AS left FROM api.leases")
        assert left_here < leases.TTL_SECONDS
        assert one.lease._until - time.monotonic() < row["left"], "looked at later than the database's"


async def test_an_open_transaction_that_has_checked_keeps_others_out_and_renewals_going(stores: Stores) -> None:
    async with a_lease(stores, "one") as one, a_lease(stores, "other") as other:
        await one.look()
        async with one.database.transaction() as tx:
            await one.lease.check(tx)
            await one.look()
            await expire(stores)
            assert not await other.look()
        assert await other.look()


async def test_is_kept_over_a_crash_of_the_database_in_the_same_epoch(stores: Stores) -> None:
    one = stores.service("api", replica="one")
    lease = one.lease("observe")
    async with running(one):
        await held(lease)
        stores.postgres.kill()
        await asyncio.to_thread(stores.postgres.start)
        until = lease._until

        async def renewed() -> bool:
            return lease._until > until

        await eventually(renewed, "a renewal")
        async with one.db.transaction() as tx:
            await lease.check(tx, 1)


def test_a_name_is_declared_once(stores: Stores) -> None:
    one = stores.service("api")
    one.lease("observe")
    with pytest.raises(ValueError, match="lease 'observe' is declared twice"):
        one.lease("observe")


@dataclass(frozen=True)
class Replica:
    """One lease of one replica, looked after by the test."""

    database: Database
    connection: asyncpg.Connection
    lease: Lease

    async def look(self) -> bool:
        """Renew it or try to take it, now; whether it was taken or lost by that."""
        self.lease._renewed_at = 0.0
        return await self.lease.keep(self.connection)

    async def check(self, epoch: int | None = None) -> None:
        """Check it in a transaction."""
        async with self.database.transaction() as tx:
            await self.lease.check(tx, epoch)


@asynccontextmanager
async def a_lease(stores: Stores, name: str) -> AsyncIterator[Replica]:
    """A replica that was not asked to look yet."""
    database = Database(stores.dsn("api"), schema="api")
    await database.connect()
    connection = await database.connection()
    await connection.execute("INSERT INTO leases VALUES ('observe', '', 0, '-infinity') ON CONFLICT DO NOTHING")
    try:
        yield Replica(database, connection, Lease("observe", name))
    finally:
        await connection.close()
        await database.close()


async def expire(stores: Stores) -> None:
    """As if its holder had not renewed it in time."""
    await stores.rows("UPDATE api.leases SET until = clock_timestamp() - interval '1 minute'")
