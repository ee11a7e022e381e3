"""Says to the services that the database was restored from a backup: run offline, after the restore and the migrations,
before any service starts.

`TIDEGATE_DATABASE_URL=… python -m infra.postgres.restored --backup-time 2026-11-30T12:00:00Z` with a login that may
write all schemas. With the administrator's login at NATS (TIDEGATE_NATS_URL, _USER, _PASSWORD) `api` also reads the
facts again that came after the backup; without, evidence of what runs comes from the watcher alone.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg
import nats
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from shared.contracts.subjects import SERVICES
from shared.runtime.errors import SettingsError
from shared.runtime.settings import BrokerSettings, DatabaseSettings
from shared.runtime.topology import rewind

SKIPPED: Final = 1_000_000
"""Numbers handed out after the backup are never given again: positions of events, versions of facts, admissions."""
MARGIN: Final = timedelta(seconds=60)
"""Facts are read again from so long before the backup: a record in it may lack what was on its way."""
_ANSWER_SECONDS: Final = 5

AT_WORK: Final = """
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'tidegate-%' ORDER BY application_name
"""
STANDING: Final = "UPDATE {service}.standing SET epoch = $1, restoring = true, backup_at = $2, restored_at = now()"
POSITIONS: Final = "UPDATE api.tenants SET position = position + $1"
SEQUENCES: Final = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $2)
FROM pg_sequences WHERE schemaname = ANY ($1::text[])
"""
TELL_AGAIN: Final = """
INSERT INTO api.resets (due) VALUES (now()) ON CONFLICT (one) DO UPDATE SET due = excluded.due, after = ''
"""


class NotNow(Exception):
    """Nothing was changed; the text says why, and what to do."""


async def begin_epoch(database_url: str, backup_at: datetime) -> int:
    """Raise the epoch of every service, in one transaction; the new one."""
    connection = await asyncpg.connect(database_url, timeout=10)
    try:
        async with connection.transaction():
            if at_work := await connection.fetch(AT_WORK):
                names = ", ".join(row[0].removeprefix("tidegate-") for row in at_work)
                raise NotNow(f"these services are connected: {names}. Stop all replicas of all services first")
            newest = " UNION ALL ".join(f"SELECT epoch FROM {service}.standing" for service in SERVICES)
            epoch = int(await connection.fetchval(f"SELECT max(epoch) + 1 FROM ({newest}) AS standing"))
            for service in SERVICES:
                await connection.execute(STANDING.format(service=service), epoch, backup_at)
            await connection.execute(POSITIONS, SKIPPED)
            await connection.fetch(SEQUENCES, list(SERVICES), SKIPPED)
            await connection.execute(TELL_AGAIN)
            return epoch
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        raise NotNow(f"{error}: run the migrations of all services first (python -m shared.runtime.migrate)") from error
    finally:
        await connection.close()


async def read_facts_again(settings: BrokerSettings, since: datetime) -> None:
    """Have `api` read the facts again that came after `since`."""
    connection = await nats.connect(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password.get_secret_value(),
        inbox_prefix=f"_INBOX_{settings.nats_user}",
        allow_reconnect=False,
        max_reconnect_attempts=1,  # nats-py also counts the first tries by this one
        reconnect_time_wait=1,
        connect_timeout=_ANSWER_SECONDS,
        error_cb=_raised_anyway,
    )
    try:
        await rewind(connection.jetstream(), "api", since)
    finally:
        await connection.close()


async def restored(backup_at: datetime, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Do all of it; a sentence per step. Raises `NotNow` or `SettingsError` where nothing was changed."""
    database_url = DatabaseSettings.load(environ).database_url.get_secret_value()
    try:
        epoch = await begin_epoch(database_url, backup_at)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise NotNow(f"PostgreSQL: {error}") from error
    said = [f"epoch {epoch} begins; nothing is admitted or launched until what runs has been seen"]
    since = backup_at - MARGIN
    try:
        await read_facts_again(BrokerSettings.load(environ), since)
    except SettingsError:
        return [*said, "no login at NATS was given: facts of the lost time are not read again"]
    except (NatsError, APIError, OSError, TimeoutError) as error:
        return [*said, f"facts of the lost time are not read again: NATS says {str(error) or type(error).__name__}"]
    return [*said, f"api reads the facts again that came after {since:%Y-%m-%d %H:%M:%S} UTC"]


async def _raised_anyway(_: Exception) -> None:
    """Without this nats-py prints a traceback of what `connect` raises."""


def moment(text: str) -> datetime:
    """An instant with its zone, in the past."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no instant: give one such as 2026-11-30T12:00:00Z") from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: add one, such as Z or +01:00")
    if at > datetime.now(UTC):
        raise argparse.ArgumentTypeError(f"{text!r} is in the future: a backup shows the past")
    return at.astimezone(UTC)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="restored", description=__doc__.split("\n\n")[0])
    parser.add_argument("--backup-time", type=moment, required=True, help="the instant that the backup shows")
    try:
        said = asyncio.run(restored(parser.parse_args().backup_time))
    except (NotNow, SettingsError) as error:
        sys.exit(f"restored: nothing was changed. {error}")
    sys.stdout.write("".join(f"{line}\n" for line in said))


if __name__ == "__main__":
    main()
