"""What the launcher asks of a backend, and what it is told: one protocol, with an adapter for each kind of backend.

"Could not ask" is always a result of its own, never an absence. Nothing here is told of an attempt before it is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from shared.backends.local.messages import CouldNotAsk, LaunchAnswer, LaunchRequest, ReleaseAnswer


@dataclass(frozen=True, slots=True)
class Target:
    """One submission of one attempt, and whose it is."""

    submission: str
    tenant: str
    job: str
    attempt: int

    @property
    def key(self) -> tuple[str, int]:
        """The attempt."""
        return (self.job, self.attempt)


class Where(StrEnum):
    """Where a submission is, as the backend shows it."""

    ALIVE = "alive"
    """It waits, runs or ends at the backend."""
    ENDED = "ended"
    """It has ended, and how is on record."""
    GONE = "gone"
    """It is not there, and nobody recorded an end."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the backend shows of one submission.

    `claimed`: it took the attempt's claim, so it may have started the command; `ran` is whether it did, as far as is
    known: a claim counts as run, unless its runner recorded that it never started the command. `ref` is the backend's
    own name for it.
    """

    target: Target
    where: Where
    claimed: bool = False
    ran: bool = True
    begun_at: datetime | None = None
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim on the attempt: its submission, and what the backend shows of it (None: no record of it)."""

    submission: str
    shown: Shown | None


Look = tuple[Holder, ...] | CouldNotAsk
"""Who holds a claim on a revoked attempt, or that this could not be known."""


class Backend(Protocol):
    """One cluster, for who launches on it and ends what runs there. Every method may be called twice."""

    @property
    def cluster(self) -> str:
        """Its name in records, and in the launcher's rows."""
        ...

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """One answer a request, in order. Idempotent by submission: after `unclear`, launch the same again."""
        ...

    async def find(self, targets: Sequence[Target]) -> list[Shown | CouldNotAsk | None]:
        """Submissions that may have reached the backend, one answer each. None only where it certainly has not, and
        will not by what was asked of it before."""
        ...

    async def revoke(self, targets: Sequence[Target]) -> list[Look]:
        """From now on nothing starts these attempts' commands; and then: who holds a claim on each."""
        ...

    async def stop(self, target: Target, grace_seconds: float, signal_number: int, *, pausing: bool) -> None:
        """Ask for the end: the signal now, SIGKILL after the grace. Raises CouldNotAsk."""
        ...

    async def kill(self, target: Target) -> bool:
        """End it now; whether nothing of it is left. Raises CouldNotAsk."""
        ...

    async def release(self, targets: Sequence[Target]) -> list[ReleaseAnswer | CouldNotAsk]:
        """Let go of what the backend keeps of attempts that have ended."""
        ...

    async def shown(self) -> list[Shown]:
        """Every submission of this deployment that the backend shows now; what cannot be asked shows none."""
        ...
