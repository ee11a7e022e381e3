"""What the controller, accounting and the runner say of one submission, put together. Pure.

The controller is believed first: accounting lags behind it by seconds and shows ends of segments that were queued
again. So accounting is asked first and the controller after it: what it does not show then was not queued again, and a
row of accounting may end it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from services.watcher.slurm.states import Means, StateRow, state_row
from shared.backends.slurm.rows import AccountingRow, ExitStatus, QueueRow

_NO_EXIT: Final = ExitStatus(0, 0)


@dataclass(frozen=True, slots=True)
class Witness:
    """The runner's own record of an end, written under its claim: the job's user could have written it."""

    restart: int
    code: int | None
    signal: int | None
    ended_at: datetime
    started_at: datetime | None = None
    stop_seen_at: datetime | None = None
    ran: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One period of running, or of waiting for it: the job under one id from a start to the next requeue.

    `state` is None where no word of it is known; `controller` says whether the controller itself shows it now.
    """

    restart: int
    created_at: datetime
    word: str
    state: StateRow | None
    controller: bool
    reason: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    exit: ExitStatus | None = None
    cancelled_by: int | None = None
    suspended_since: datetime | None = None
    suspended_ms: int = 0
    end_is_requeue: bool = False
    """Whether `end` is only the time of the next submission: accounting has not shown this segment yet."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One submission: its segments, oldest first, and the runner's records of their ends."""

    name: str
    job: str
    attempt: int
    tenant: str
    id: str
    segments: tuple[Segment, ...]
    witnesses: tuple[Witness, ...] = ()

    @property
    def last(self) -> Segment:
        return self.segments[-1]

    @property
    def alive(self) -> bool:
        """Whether the controller shows it, and not as ended."""
        return self.last.controller and not is_over(self.last)

    def witness(self, restart: int) -> Witness | None:
        """What the runner recorded of a segment's end."""
        return next((one for one in self.witnesses if one.restart == restart), None)


def of_claim(name: str, job: str, attempt: int, tenant: str, id: str, since: datetime, end: Witness) -> Sighting:
    """A submission of which only the runner's records are left."""
    segment = Segment(end.restart, since, "GONE", None, controller=False, start=end.started_at, end=end.ended_at)
    return Sighting(name, job, attempt, tenant, id, (segment,), (end,))


def is_over(segment: Segment) -> bool:
    """Whether the segment has ended for good, as far as its own word goes; no word, no end."""
    return segment.state is not None and segment.state.means is Means.ENDED


def segments(queue: QueueRow | None, accounting: Sequence[AccountingRow]) -> tuple[Segment, ...]:
    """The segments of one Slurm job (one id), in any order of rows; () where no row says when it was submitted.

    Accounting has a row for each, by time of submission; a requeue is a submission anew. The controller's row is the
    newest, and takes the place of accounting's about the same; only who cancelled it accounting alone says. Of a
    controller's row without its time nothing can be told.
    """
    past = sorted(
        (row for row in accounting if row.submitted_at is not None),
        key=lambda row: (row.submitted_at, row.start or row.submitted_at),
    )
    if queue is None:
        return tuple(_of_accounting(number, row) for number, row in enumerate(past))
    if queue.submitted_at is None:
        return ()
    before = [row for row in past if row.submitted_at is not None and row.submitted_at < queue.submitted_at]
    found = [_of_accounting(number, row) for number, row in enumerate(before[: queue.restarts])]
    if queue.restarts > len(found):
        found += _not_told_yet(queue, found)
    same = (row.cancelled_by for row in past if row.submitted_at == queue.submitted_at)
    return (*found, _of_queue(queue, next((by for by in same if by is not None), None)))


def _of_queue(row: QueueRow, cancelled_by: int | None) -> Segment:
    assert row.submitted_at is not None
    word = "COMPLETING" if row.completing else row.state
    known = state_row(word)
    started = known is not None and known.means not in (Means.WAITS, Means.HELD)
    suspended = 0 if row.suspended is None else round(row.suspended.total_seconds() * 1000)
    if row.start is not None and row.run_time is not None and row.end is not None and is_ended(known):
        suspended = max(0, round(((row.end - row.start) - row.run_time).total_seconds() * 1000))
    return Segment(
        restart=row.restarts,
        created_at=row.submitted_at,
        word=word,
        state=known,
        controller=True,
        reason=row.reason,
        start=row.start if started and not _never_started(row) else None,
        end=row.end if is_ended(known) else None,
        exit=row.exit,
        cancelled_by=cancelled_by,
        suspended_since=row.suspended_since if known is not None and known.means is Means.SUSPENDED else None,
        suspended_ms=suspended,
    )


def _of_accounting(number: int, row: AccountingRow) -> Segment:
    assert row.submitted_at is not None
    known = None if row.half_filled else state_row(row.state)
    suspended = 0 if row.suspended is None else round(row.suspended.total_seconds() * 1000)
    return Segment(
        restart=number,
        created_at=row.submitted_at,
        word=row.state,
        state=known,
        controller=False,
        reason=row.reason,
        start=None if _never_started(row) else row.start,
        end=row.end,
        exit=row.exit,
        cancelled_by=row.cancelled_by,
        suspended_ms=suspended,
    )


def _never_started(row: QueueRow | AccountingRow) -> bool:
    """Slurm writes the end of a job that was cancelled while it waited as its start, too; it had no node then."""
    return row.nodes is None and row.start is not None and row.start == row.end


def _not_told_yet(queue: QueueRow, found: Sequence[Segment]) -> list[Segment]:
    """Segments that the controller counts and accounting does not show yet: they ended at the next submission."""
    assert queue.submitted_at is not None
    return [
        Segment(
            restart=number,
            created_at=queue.submitted_at,
            word="REQUEUED",
            state=state_row("REQUEUED"),
            controller=False,
            end=queue.submitted_at,
            end_is_requeue=True,
        )
        for number in range(len(found), queue.restarts)
    ]


def is_ended(row: StateRow | None) -> bool:
    """Whether a state is an end."""
    return row is not None and row.means is Means.ENDED
