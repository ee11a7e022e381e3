"""What the cluster shows, asked once for all who want to know at the same time."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer, QueueRow
from shared.runtime.clock import Clock

_SPACING_SECONDS: Final = 1.0
_ACCOUNTED: Final = timedelta(days=8)
"""So far back accounting is searched for a launch whose answer was lost: longer than a restore goes back."""


class Looks:
    """At most one squeue a second, begun after whoever gets its answer had asked for it."""

    def __init__(self, client: SlurmClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._asking = asyncio.Lock()
        self._begun = float("-inf")
        self._answer: Mapping[str, list[QueueRow]] | NoAnswer = NoAnswer("nobody has looked yet")

    async def queue(self) -> Mapping[str, list[QueueRow]] | NoAnswer:
        """All jobs that the controller knows, by name."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._asking:
            if self._begun < asked:
                await asyncio.sleep(self._begun + _SPACING_SECONDS - loop.time())
                self._begun = loop.time()
                self._answer = _by_name(await self._client.queue())
            return self._answer

    async def accounting(self, names: Sequence[str]) -> Mapping[str, list[AccountingRow]] | NoAnswer:
        """What accounting has of jobs of these names. Rows whose name it does not have yet are nobody's."""
        now = self._clock.now()
        found = await self._client.accounting(now - _ACCOUNTED, names=names)
        if isinstance(found, NoAnswer):
            return found
        rows: dict[str, list[AccountingRow]] = {}
        for row in found.rows:
            rows.setdefault(row.name, []).append(row)
        return rows


def _by_name(listed: Listed[QueueRow] | NoAnswer) -> Mapping[str, list[QueueRow]] | NoAnswer:
    if isinstance(listed, NoAnswer):
        return listed
    rows: dict[str, list[QueueRow]] = {}
    for row in listed.rows:
        rows.setdefault(row.name, []).append(row)
    return rows
