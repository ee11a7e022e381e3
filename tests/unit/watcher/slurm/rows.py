"""Rows as a cluster shows them, of one job unless said otherwise."""

from datetime import UTC, datetime, timedelta

from services.watcher.slurm.sighting import Sighting, Witness, segments
from shared.backends.slurm.rows import AccountingRow, ExitStatus, QueueRow

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
JOB = "j" + "0" * 26
NAME = f"tidegate.{JOB}.a1.s1"


def at(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def exit_status(text: str | None) -> ExitStatus | None:
    """`3:0` as Slurm prints it."""
    if text is None:
        return None
    code, signal = text.split(":")
    return ExitStatus(int(code), int(signal))


def queued(
    state: str,
    reason: str | None = None,
    *,
    exit: str | None = None,
    submitted: float = 0,
    start: float | None = None,
    end: float | None = None,
    restarts: int = 0,
    run_time: float | None = None,
    suspended_since: float | None = None,
    suspended: float | None = None,
    completing: bool = False,
) -> QueueRow:
    """A row of the controller."""
    return QueueRow(
        id="27",
        name=NAME,
        comment=None,
        user="root",
        state=state,
        reason=reason,
        partition="debug",
        submitted_at=at(submitted),
        start=None if start is None else at(start),
        end=None if end is None else at(end),
        suspended_since=None if suspended_since is None else at(suspended_since),
        run_time=None if run_time is None else timedelta(seconds=run_time),
        restarts=restarts,
        exit=exit_status(exit),
        nodes=None,
        tres=None,
        completing=completing,
        suspended=None if suspended is None else timedelta(seconds=suspended),
    )


def accounted(
    state: str,
    *,
    exit: str | None = "0:0",
    submitted: float = 0,
    start: float | None = None,
    end: float | None = None,
    by: int | None = None,
    suspended: float | None = None,
    half_filled: bool = False,
) -> AccountingRow:
    """A row of accounting."""
    return AccountingRow(
        id="27",
        name=NAME,
        comment=None,
        user="root",
        state=state,
        cancelled_by=by,
        exit=exit_status(exit),
        reason=None,
        submitted_at=at(submitted),
        start=None if start is None else at(start),
        end=None if end is None else at(end),
        elapsed=None,
        suspended=None if suspended is None else timedelta(seconds=suspended),
        nodes=None,
        tres=None,
        half_filled=half_filled,
    )


def seen(
    queue: QueueRow | None, accounting: tuple[AccountingRow, ...] = (), witnesses: tuple[Witness, ...] = ()
) -> Sighting:
    """What both show of the job."""
    return Sighting(NAME, JOB, 1, "acme", "27", segments(queue, accounting), witnesses)
