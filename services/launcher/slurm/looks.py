"""What the cluster shows, asked once for all who want to know at the same time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from shared.backends.local.messages import CouldNotAsk
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer, QueueRow
from shared.runtime.clock import Clock

_SPACING_SECONDS: Final = 1.0
_ACCOUNTED: Final = timedelta(days=8)
"""So far back accounting is searched for a launch whose answer was lost: longer than a restore goes back."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A whole answer of the controller, by jobs' names. `since`: it has answered every time since then."""

    since: datetime
    jobs: Mapping[str, Sequence[QueueRow]] = field(default_factory=dict)
    unread: Sequence[str] = ()

    def of(self, name: str) -> Sequence[QueueRow]:
        """The jobs of this name. Raises CouldNotAsk where a line that could not be read may be one."""
        if any(name in line for line in self.unread):
            raise CouldNotAsk(f"what squeue says of {name} cannot be read")
        return self.jobs.get(name, ())


class Looks:
    """At most one squeue a second, begun after whoever gets its answer had asked for it."""

    def __init__(self, client: SlurmClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._asking = asyncio.Lock()
        self._begun = float("-inf")
        self._answer: Queue | CouldNotAsk = CouldNotAsk("nobody has looked yet")

    async def queue(self) -> Queue:
        """All jobs that the controller knows. Raises CouldNotAsk."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._asking:
            if self._begun < asked:
                await asyncio.sleep(self._begun + _SPACING_SECONDS - loop.time())
                begun, now = loop.time(), self._clock.now()
                answer = self._told(await self._client.queue(), now)
                self._begun, self._answer = begun, answer  # together: whoever waits may take an answer for its own
            answer = self._answer
        if isinstance(answer, CouldNotAsk):
            raise CouldNotAsk(str(answer))
        return answer

    async def accounting(self, names: Sequence[str]) -> Mapping[str, Sequence[AccountingRow]]:
        """What accounting has of jobs of these names. Raises CouldNotAsk where it cannot be asked or read."""
        answer = await self._client.accounting(self._clock.now() - _ACCOUNTED, names=names)
        if isinstance(answer, NoAnswer):
            raise CouldNotAsk(answer.why)
        if unread := [name for name in names if any(name in line for line in answer.skipped)]:
            raise CouldNotAsk(f"what sacct says of {unread[0]} cannot be read")
        jobs: dict[str, list[AccountingRow]] = {}
        for row in answer.rows:
            jobs.setdefault(row.name, []).append(row)
        return jobs

    def _told(self, answer: Listed[QueueRow] | NoAnswer, begun: datetime) -> Queue | CouldNotAsk:
        if isinstance(answer, NoAnswer):
            return CouldNotAsk(answer.why)
        jobs: dict[str, list[QueueRow]] = {}
        for row in answer.rows:
            jobs.setdefault(row.name, []).append(row)
        since = self._answer.since if isinstance(self._answer, Queue) else begun
        return Queue(since, jobs, answer.skipped)
