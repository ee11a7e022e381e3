"""From rows of queue and accounting to sightings: which Slurm job of a name is the submission, and what is told of it.

Pure. Of two jobs of one name the claim's holder is the submission, else the earlier: the other never runs the command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.watcher.slurm.sighting import Sighting, Witness, segments
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm.records import Records
from shared.backends.slurm.rows import AccountingRow, QueueRow

_COMMENT_WORDS = 3


@dataclass(frozen=True, slots=True)
class Rows:
    """What both show of jobs of one name."""

    queue: tuple[QueueRow, ...] = ()
    accounting: tuple[AccountingRow, ...] = ()

    @property
    def all(self) -> tuple[QueueRow | AccountingRow, ...]:
        """The queue's first."""
        return (*self.queue, *self.accounting)


def by_name(queue: Sequence[QueueRow], accounting: Sequence[AccountingRow], deployment: str) -> Mapping[str, Rows]:
    """Rows of this deployment's submissions; strangers' jobs, arrays and whatever else have other names."""
    names: dict[str, tuple[list[QueueRow], list[AccountingRow]]] = {}
    for row in queue:
        if _is_ours(row.name, deployment):
            names.setdefault(row.name, ([], []))[0].append(row)
    for past in accounting:
        if _is_ours(past.name, deployment):
            names.setdefault(past.name, ([], []))[1].append(past)
    return {name: Rows(tuple(rows), tuple(ended)) for name, (rows, ended) in names.items()}


def tenant_in(rows: Rows) -> str | None:
    """As the comment says that the launcher gave the job."""
    comments = [row.comment for row in rows.all if row.comment]
    words = [comment.split() for comment in comments]
    return next((said[2] for said in words if len(said) == _COMMENT_WORDS), None)


def sighting(name: str, rows: Rows, tenant: str, known: Records) -> Sighting | None:
    """None where no row says when it was submitted."""
    parsed = parse_submission_name(name)
    if parsed is None:
        return None
    ids = {row.id for row in rows.all}
    if not ids:
        return None
    holder = known.holder.slurm_job_id if known.holder is not None else None
    id = holder if holder in ids else min(ids, key=lambda one: _since(one, rows))
    mine = next((row for row in rows.queue if row.id == id), None)
    found = segments(mine, [row for row in rows.accounting if row.id == id])
    if not found:
        return None
    return Sighting(name, parsed[1], parsed[2], tenant, id, found, witnesses(known) if holder == id else ())


def witnesses(known: Records) -> tuple[Witness, ...]:
    """The runner's records of ends."""
    return tuple(
        Witness(
            restart,
            end.code,
            end.signal,
            end.ended_at,
            end.started_at,
            None if end.stop_seen is None else end.stop_seen.at,
            end.ran,
            end.reason,
        )
        for restart, end in sorted(known.exits.items())
    )


def _since(id: str, rows: Rows) -> tuple[float, int, str]:
    times = [row.submitted_at for row in rows.all if row.id == id and row.submitted_at]
    return (min(times).timestamp() if times else float("inf"), len(id), id)


def _is_ours(name: str, deployment: str) -> bool:
    return name.startswith(f"{deployment}.") and parse_submission_name(name) is not None
