"""Removes what stagers that were killed, or lost their lease, left on the cluster and in the store."""

import asyncio
from collections.abc import Callable
from functools import partial

from services.stager import workdir
from services.stager.blobs import StoreError
from services.stager.copying import Copying, prefix_of
from services.stager.leases import Leases
from services.stager.underway import Trace, Underway
from shared.runtime.logs import Log
from shared.runtime.standing import Standing


class Sweep:
    """Goes through the traces of work that was not settled. Safe to repeat, and to be killed in."""

    def __init__(
        self,
        underway: Underway,
        rows: Leases,
        copying: Copying,
        root: str,
        standing: Callable[[], Standing],
        log: Log,
    ) -> None:
        self._underway = underway
        self._rows = rows
        self._copying = copying
        self._root = root
        self._standing = standing
        self._log = log

    async def once(self) -> None:
        """Clear up after everybody who works no more; what cannot be removed now is tried again."""
        for trace in await asyncio.to_thread(self._underway.left):
            standing = self._standing()
            lost_time = trace.mark.epoch < standing.epoch
            if lost_time and standing.restoring:
                continue  # the row may yet learn that this is what counts
            with self._underway.dead(trace) as held:
                if held is None:
                    continue
                directory, manifest = await self._rows.published(trace)
                try:
                    await asyncio.to_thread(partial(self._clear, trace, directory, manifest, lost_time=lost_time))
                except (StoreError, OSError) as error:
                    self._log.warning("leftovers stay for now", job=trace.job, attempt=trace.attempt, error=str(error))
                    return
                held.settled = True

    def _clear(self, trace: Trace, directory: str | None, manifest: str | None, *, lost_time: bool) -> None:
        where = (self._root, trace.tenant, trace.job, trace.attempt, trace.mark)
        workdir.discard(*where, directory, lost_time=lost_time)
        if manifest is None or not manifest.startswith(f"{prefix_of(trace)}."):
            self._copying.forget(trace)
