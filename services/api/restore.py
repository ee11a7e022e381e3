"""What ends a restore of the database: nothing is admitted or launched before it has been seen what runs.

The database says that it was restored (`python -m infra.postgres.restored`). Then every open job is told again in the
new epoch, the facts of the lost time come again, and the watcher tells all that the backends show. Once all of that is
in the records `api` is in step; the other services ask it, and go on.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from services.api.resets import Resets
from shared.runtime.errors import RpcError, RpcUnavailable, Unavailable
from shared.runtime.leases import Lease
from shared.runtime.service import Service

# Attempts that were found and not known as let through; facts of jobs that are not in the database.
FOUND: Final = """
SELECT
    (SELECT count(*) FROM jobs WHERE epoch = $1 AND record -> 'attempts' -> -1 ->> 'admission' = '0') AS adopted,
    (SELECT count(DISTINCT job) FROM orphans) AS orphans
"""


class Restore:
    """Watches a restore; one replica does."""

    def __init__(self, service: Service, resets: Resets, lag: Callable[[str], Awaitable[int]], lease: Lease) -> None:
        """`lag` says how many messages of a consumer are still to be handled."""
        self._service = service
        self._resets = resets
        self._lag = lag
        self._lease = lease
        self._said: str | None = None

    async def step(self) -> None:
        """Go on once nothing is waited for any more; say what is."""
        standing = self._service.standing
        if not standing.restoring or not self._lease.held:
            return
        waits_for = await self.waits_for(standing.epoch)
        if waits_for is None:
            await self._service.mark_in_step()
            row = await self._service.db.fetchrow(FOUND, standing.epoch)
            assert row is not None, "it counts"
            self._service.log.warning(
                "the restore is over; `tidegate admin orphans` lists facts of jobs that are not known any more",
                epoch=standing.epoch,
                backup_at=standing.backup_at,
                adopted=row["adopted"],
                orphaned_jobs=row["orphans"],
            )
        elif waits_for != self._said:
            self._service.log.warning("restoring: nothing is admitted or launched yet", waits_for=waits_for)
        self._said = waits_for

    async def waits_for(self, epoch: int) -> str | None:
        """What is still to come before all that runs is in the records; None once it is."""
        if await self._resets.pending():
            return "every open job to be told again"
        try:
            watcher = orjson.loads(await self._service.call("watcher", "standing", b""))
        except (RpcUnavailable, RpcError):
            return "the watcher, which does not answer"
        if watcher["epoch"] != epoch or watcher["restoring"] or watcher["unsent"]:
            return "the watcher to tell all that runs"
        try:
            lag = await self._lag("api")
        except Unavailable:
            return "the broker"
        return "the facts of the lost time" if lag else None
