"""What one Slurm cluster says of its jobs, as values: one row of the queue, one of accounting. No decisions.

Words are kept as Slurm prints them, in upper case; what a field leaves open (`N/A`, `Unknown`, `None`, `(null)`, 0) is
None. Times are aware, in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """`code:signal` as Slurm prints it. 0:125 stands for out of memory."""

    code: int
    signal: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A job as the controller shows it, living or ended less than MinJobAge ago.

    `state` is its first word (RUNNING, COMPLETING, …), `completing` that its epilog has not ended. `id` is text: an
    array or a heterogeneous job has more in it than a number. `start` of a pending job and `end` of a living one are
    estimates.
    """

    id: str
    name: str
    comment: str | None
    user: str
    state: str
    reason: str | None
    partition: str | None
    submitted_at: datetime | None
    start: datetime | None
    end: datetime | None
    suspended_since: datetime | None
    run_time: timedelta | None
    """So long it has run, suspensions not counted."""
    restarts: int
    exit: ExitStatus | None
    nodes: str | None
    tres: str | None
    completing: bool = False
    doubtful: tuple[str, ...] = ()
    """The fields of time whose text stands for no certain time, such as an hour that a zone's clocks show twice."""
    suspended: timedelta | None = None
    """So long it was suspended before now, or before `suspended_since`; only of a job that runs or is suspended, and
    None where it has no time limit. Slurm puts the end of a job off by what it was suspended, which is where this and
    `suspended_since` come from: squeue says neither."""

    @property
    def refused(self) -> bool:
        """Is it what is kept of a submission that was refused, as no node could ever run it? It never was a job."""
        return self.state == "FAILED" and self.reason == "BadConstraints"


@dataclass(frozen=True, slots=True)
class AccountingRow:
    """An allocation as slurmdbd has it (never a step): one row per segment, so a requeued job has several.

    `cancelled_by` is the uid of `CANCELLED by <uid>`. `half_filled`: the row is known to lag behind the controller
    (name `allocation`, no partition), and its state says nothing.
    """

    id: str
    name: str
    comment: str | None
    user: str | None
    state: str
    cancelled_by: int | None
    exit: ExitStatus | None
    reason: str | None
    submitted_at: datetime | None
    start: datetime | None
    end: datetime | None
    elapsed: timedelta | None
    """End less start, suspensions not counted."""
    suspended: timedelta | None
    nodes: str | None
    tres: str | None
    half_filled: bool = False
    doubtful: tuple[str, ...] = ()
    """As in a QueueRow."""

    @property
    def refused(self) -> bool:
        """As of a QueueRow. Here no reason tells it: of all that failed it alone had no node, and no time."""
        return self.state == "FAILED" and self.nodes is None and self.start is not None and self.start == self.end


@dataclass(frozen=True, slots=True)
class Listed(Generic[Row]):
    """An answer that was whole: every job that the cluster has to show. `skipped` are lines that could not be read."""

    rows: tuple[Row, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Could not ask: no information, never to be read as an absence. `why` is a sentence."""

    why: str
