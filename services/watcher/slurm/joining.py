"""From rows of queue and accounting to sightings: which Slurm job of a name is the submission, and what is told of it.

Pure. Of two jobs of one name the claim's holder is the submission, else the earlier: the other never runs the command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.watcher.slurm.sighting import Sighting, Witness, is_over, segments
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm.ids import parse_id
from shared.backends.slurm.records import Records
from shared.backends.slurm.rows import AccountingRow, QueueRow

_COMMENT = "tidegate/1"


@dataclass(frozen=True, slots=True)
class Rows:
    """What both show of jobs of one name."""

    queue: tuple[QueueRow, ...] = ()
    accounting: tuple[AccountingRow, ...] = ()

    @property
    def all(self) -> tuple[QueueRow | AccountingRow, ...]:
        """The queue's first."""
        return (*self.queue, *self.accounting)

    @property
    def alive(self) -> bool:
        """Whether the queue shows one that has not ended, or of which it cannot be told."""
        return any(map(lives, self.queue))

    @property
    def doubled(self) -> bool:
        """Whether there are several Slurm jobs of the name."""
        return len({row.id for row in self.all}) > 1


def by_name(queue: Sequence[QueueRow], accounting: Sequence[AccountingRow], deployment: str) -> Mapping[str, Rows]:
    """Rows of this deployment's submissions. Strangers' jobs have other names; arrays and heterogeneous jobs are not
    ours, whatever their name."""
    names: dict[str, tuple[list[QueueRow], list[AccountingRow]]] = {}
    for row in queue:
        if _is_ours(row, deployment):
            names.setdefault(row.name, ([], []))[0].append(row)
    for past in accounting:
        if _is_ours(past, deployment):
            names.setdefault(past.name, ([], []))[1].append(past)
    return {name: Rows(tuple(rows), tuple(ended)) for name, (rows, ended) in names.items()}


def tenant_in(rows: Rows) -> str | None:
    """As the comment says that the launcher gave the job."""
    for row in rows.all:
        match (row.comment or "").split():
            case [first, _, tenant] if first == _COMMENT:
                return tenant
    return None


def sighting(name: str, rows: Rows, tenant: str, known: Records) -> Sighting | None:
    """None where no row says when it was submitted, and where who has the claim is not shown: another one's end is not
    the submission's."""
    parsed = parse_submission_name(name)
    ids = {row.id for row in rows.all}
    holder = known.holder.slurm_job_id if known.holder is not None else None
    if parsed is None or not ids:
        return None
    id = holder or min(ids, key=lambda one: _since(one, rows))
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


def lives(row: QueueRow) -> bool:
    """Whether a job has not ended, as far as the queue's word goes."""
    found = segments(row, ())
    return not found or not is_over(found[-1])


def _is_ours(row: QueueRow | AccountingRow, deployment: str) -> bool:
    if not row.name.startswith(f"{deployment}.") or parse_submission_name(row.name) is None:
        return False
    if row.refused:  # who submitted it tells that it was refused
        return False
    id = parse_id(row.id)
    return id is not None and id.job == row.id
