"""What lies in attempts' directories: who has the claim, what its runner recorded, and when sbatch was called."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from services.launcher.backend import Target
from services.launcher.slurm import asked
from shared.backends.local import layout
from shared.backends.local.messages import CouldNotAsk
from shared.backends.slurm import records
from shared.backends.slurm.records import Records

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of one attempt. `over_at` as `asked.last_over_at` says."""

    known: Records
    over_at: datetime | None

    @property
    def claimed(self) -> bool:
        """Somebody has the claim, so that nobody else will run the command."""
        return self.known.holder is not None or self.known.claim_unreadable


class Attempts:
    """The attempts' directories below a root."""

    def __init__(self, root: str) -> None:
        self.root = root

    def directory(self, target: Target) -> str:
        """Where the attempt's claim, logs and staged directories are, whether or not it exists."""
        return layout.attempt_directory(self.root, target.tenant, target.job, target.attempt)

    async def look(self, targets: Sequence[Target]) -> list[Evidence | CouldNotAsk]:
        """One answer each; what could not be read of one is no matter of the others."""

        def of(target: Target) -> Evidence | CouldNotAsk:
            directory = self.directory(target)
            try:
                return Evidence(records.read(directory), asked.last_over_at(directory))
            except OSError as error:
                return _unreadable(error)

        return await asyncio.to_thread(lambda: [of(target) for target in targets])


async def in_thread(work: Callable[[], T]) -> T:
    """Work on files that may be far away. Raises CouldNotAsk where they cannot be read or written."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> CouldNotAsk:
    return CouldNotAsk(f"the attempt's directory could not be read or written: {error}")
