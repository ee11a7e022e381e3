"""A replica of `api` that holds a lease: `python leaseholder.py FOLDER`, with the usual settings.

Once `write` is there it begins a transaction, checks the lease, writes a row, says `checked`, waits for `commit`, and
says in `outcome` how that went.
"""

import asyncio
import sys
from pathlib import Path

from shared.runtime.database import Database
from shared.runtime.errors import DatabaseUnavailable
from shared.runtime.leases import LeaseLost, Leases
from shared.runtime.logs import Log
from shared.runtime.outbox import Outgoing
from shared.runtime.settings import ServiceSettings

folder = Path(sys.argv[1])


async def there(name: str) -> None:
    """Wait for a file that another process makes."""
    while not (folder / name).exists():  # noqa: ASYNC110 # see above
        await asyncio.sleep(0.01)


async def main() -> None:
    """Hold the lease, and write under it when told to."""
    settings = ServiceSettings.load()
    database = Database(settings.database_url.get_secret_value(), schema="api")
    await database.connect()
    leases = Leases(database, settings.replica, Log("leaseholder"))
    lease = leases.declare("observe")
    keeping = asyncio.create_task(leases.run())
    await lease.taken()
    await there("write")
    try:
        async with database.transaction() as tx:
            await lease.check(tx)
            await tx.enqueue([Outgoing("jobs.v1.acme.queued", "late", "job", b"late")])
            (folder / "checked").write_text("it is")
            await there("commit")
    except (LeaseLost, DatabaseUnavailable) as error:
        (folder / "outcome").write_text(type(error).__name__)
    else:
        (folder / "outcome").write_text("committed")
    await keeping


asyncio.run(main())
