"""Ending Slurm jobs, so many at a time."""

import asyncio
from typing import Final

from opentelemetry.metrics import Meter

from services.launcher.slurm.found import doubles
from shared.backends.local.messages import CouldNotAsk
from shared.backends.slurm import script
from shared.backends.slurm.answers import NotDone
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.records import Records
from shared.backends.slurm.rows import QueueRow
from shared.runtime.logs import Log

_AT_ONCE: Final = 8


class Cancelling:
    """Always by id and name: an id may be another job's by now."""

    def __init__(self, client: SlurmClient, log: Log, meter: Meter) -> None:
        self._client = client
        self._log = log
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._doubles = meter.create_counter(
            "tidegate_double_submissions", description="Slurm jobs cancelled as second ones of one submission"
        )
        self._said: set[str] = set()

    async def cancel(self, row: QueueRow, *, state: str | None = None) -> None:
        """End it, where it still is in that state. Raises CouldNotAsk."""
        async with self._slots:
            done = await self._client.cancel([row.id], name=row.name, state=state)
        if isinstance(done, NotDone):
            raise CouldNotAsk(f"Slurm job {row.id} could not be cancelled: {done.why}")

    async def nudge(self, row: QueueRow) -> None:
        """Have its runner look for a request at once; it looks by itself, too."""
        async with self._slots:
            told = await self._client.cancel([row.id], name=row.name, signal=script.NUDGE_SIGNAL, batch=True)
        if isinstance(told, NotDone):
            self._log.info("a runner was not told of a stop, and will look", job=row.id, why=told.why)

    async def cancel_doubles(self, rows: list[QueueRow], known: Records) -> None:
        """Of several jobs of one submission one stays. What cannot be cancelled now is tried at the next look."""
        for row in doubles(rows, known):
            try:
                await self.cancel(row, state=None if known.holder is not None else "PENDING")
            except CouldNotAsk as error:
                self._log.warning("a second Slurm job of a submission stays", submission=row.name, why=str(error))
                continue
            if row.id not in self._said:
                self._said.add(row.id)
                self._doubles.add(1)
                self._log.warning(
                    "a submission has two Slurm jobs: one is cancelled", submission=row.name, cancelled=row.id
                )
