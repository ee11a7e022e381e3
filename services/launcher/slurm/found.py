"""Slurm jobs that have the name of a submission, by what the queue, accounting and the runner say of them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from shared.backends.slurm.records import Records
from shared.backends.slurm.rows import AccountingRow, QueueRow

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


@dataclass(frozen=True, slots=True)
class Found:
    """A job of a submission's name, in the queue or in accounting alone."""

    id: str
    submitted_at: datetime
    alive: bool


def found_of(rows: Iterable[QueueRow], past: Iterable[AccountingRow]) -> list[Found]:
    """Each Slurm job once, the earliest first."""
    found: dict[str, Found] = {}
    for row in past:
        if row.submitted_at is not None and (row.id not in found or row.submitted_at < found[row.id].submitted_at):
            found[row.id] = Found(row.id, row.submitted_at, alive=False)
    for live in rows:
        known = found.get(live.id)
        since = known.submitted_at if known is not None else live.submitted_at or datetime.now(UTC)
        found[live.id] = Found(live.id, since, alive=is_alive(live))
    return sorted(found.values(), key=lambda one: (one.submitted_at, len(one.id), one.id))


def is_alive(row: QueueRow) -> bool:
    """Whether anything of it runs or will."""
    return row.completing or row.state not in _ENDED


def ran(known: Records) -> bool:
    """Whether the command may have been started by who has the claim."""
    last = known.exits[max(known.exits)] if known.exits else None
    return last is None or last.ran or last.reason not in _NEVER_RAN
