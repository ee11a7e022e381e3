"""What an observation of this machine's local jobs says, apart from how it is made: decisions read it without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.backends.local.records import ClaimRecord, ExitRecord, SpecRecord, StartedRecord


class LocalState(StrEnum):
    """What the records and the processes say of one submission."""

    ACCEPTED = "accepted"  # the intent is recorded and a supervisor is there, about to take the claim
    CLAIMED = "claimed"  # the claim is taken; files change owner, the command is about to start
    RUNNING = "running"  # the command is up
    EXITED = "exited"  # there is a record of the end, and nothing of it is left
    GONE = "gone"  # no supervisor and no record of an end; with `claim` None it never started and may be launched again


@dataclass(frozen=True, slots=True)
class Seen:
    """One submission, as last seen, with the records behind it."""

    submission: str
    deployment: str
    job: str
    attempt: int
    state: LocalState
    spec: SpecRecord | None = None
    claim: ClaimRecord | None = None
    started: StartedRecord | None = None
    stop_seen_at: datetime | None = None
    exit: ExitRecord | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Every submission that is not released. Absence counts only where `complete`."""

    complete: bool
    submissions: tuple[Seen, ...]
    problem: str | None = None
