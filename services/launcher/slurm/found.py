"""Slurm jobs that have the name of a submission: which of them it is, whether it lives, whether it ran. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from services.launcher.backend import Shown, Target, Where
from services.launcher.slurm.orders import COMMENT
from shared.backends.local.names import is_name, parse_submission_name
from shared.backends.slurm.records import Records, Run
from shared.backends.slurm.rows import AccountingRow, QueueRow

UP: Final = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States of the queue in which the batch script is on its node, and can be told something."""
_ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of the queue in which nothing of a job runs or will; `completing` apart."""
_NEVER_RAN: Final = frozenset({"revoked", "stopped_before_start"})
_NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
_COMMENT_WORDS: Final = 3


def is_alive(row: QueueRow) -> bool:
    """Whether anything of it runs or will."""
    return row.completing or row.state not in _ENDED


def target_of(row: QueueRow) -> Target | None:
    """Whose job it is, by its name and comment; None where they are not ours."""
    parsed = parse_submission_name(row.name)
    said = _comment(row.comment)
    if parsed is None or said is None or not is_name(said[1]):
        return None
    return Target(row.name, said[1], parsed[1], parsed[2])


def the_one(rows: Sequence[QueueRow], known: Records) -> QueueRow | None:
    """Of jobs of one name the submission: who has the claim, which is None of them where that is in the queue no more;
    without a claim the earlier."""
    if known.holder is not None:
        return next((row for row in rows if _is_run_of(row, known.holder)), None)
    return min(rows, key=lambda row: (row.submitted_at or _NEVER, len(row.id), row.id), default=None)


def shown(target: Target, rows: Sequence[QueueRow], known: Records) -> Shown | None:
    """The submission by its jobs in the queue and by its claim; None where there is neither."""
    row = the_one(rows, known)
    if row is None and known.holder is None and not known.claim_unreadable:
        return None
    times = [claim.claimed_at for claim in known.claims[:1]]
    if row is not None and row.submitted_at is not None:  # of a job that was queued again the last time
        times.append(row.submitted_at)
    if row is not None:
        where = Where.ALIVE if is_alive(row) else Where.ENDED
    else:
        where = Where.ENDED if known.exits else Where.GONE
    ref = row.id if row is not None else None if known.holder is None else known.holder.slurm_job_id
    return Shown(target, where, row is None or known.holder is not None, ran(known), min(times, default=None), ref)


def shown_ended(target: Target, rows: Sequence[AccountingRow]) -> Shown | None:
    """The submission by accounting alone: it was there, and nobody has taken its claim."""
    past = [row for row in rows if not row.refused]
    row = min(past, key=lambda row: (row.submitted_at or _NEVER, len(row.id), row.id), default=None)
    return None if row is None else Shown(target, Where.ENDED, begun_at=row.submitted_at, ref=row.id)


def doubles(rows: Sequence[QueueRow], known: Records) -> list[QueueRow]:
    """The jobs that are to be cancelled, as another one is the submission.

    Without a claim those that still wait: one that starts takes it, or ends by itself without having run.
    """
    first = the_one(rows, known)
    others = [row for row in rows if row is not first and is_alive(row) and not row.completing]
    return [row for row in others if known.holder is not None or row.state == "PENDING"]


def ran(known: Records) -> bool:
    """Whether the command may have been started, by any run of who has the claim."""
    runs = {claim.run.restart for claim in known.claims} | set(known.started) | set(known.exits)
    return not runs or any(_may_have_run(known, restart) for restart in runs)


def _may_have_run(known: Records, restart: int) -> bool:
    end = known.exits.get(restart)
    return restart in known.started or end is None or end.ran or end.reason not in _NEVER_RAN


def _is_run_of(row: QueueRow, holder: Run) -> bool:
    """Ids are used again: another job of this name with this id was made by another call of sbatch."""
    said = _comment(row.comment)
    return row.id == holder.slurm_job_id and (said is None or said[0] == holder.token)


def _comment(text: str | None) -> tuple[str, str] | None:
    """(token, tenant) as `orders.comment` put them."""
    words = (text or "").split()
    return (words[1], words[2]) if len(words) == _COMMENT_WORDS and words[0] == COMMENT else None
