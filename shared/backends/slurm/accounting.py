"""sacct: the one question about all that ended, and its answer.

Times are given as `uts<seconds>`: with any other form sacct cannot read its own default times once SLURM_TIME_FORMAT
is set. A held job and one without an end so far may be absent here; a comment is there from the job's end on.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from shared.backends.slurm import text
from shared.backends.slurm.ids import parse_id
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer

COLUMNS: Final = (
    "JobID",
    "JobName",
    "Comment",
    "User",
    "State",
    "ExitCode",
    "Reason",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "NodeList",
    "AllocTRES",
    "Partition",
)

DISABLED: Final = "accounting storage is disabled"
"""What sacct says where no slurmdbd is. `sacct -c` is no substitute: the job completion log has no comment, no segments
and nobody who cancelled, and is read whole at each call."""
DISABLED_SENTENCE: Final = (
    "this cluster keeps no accounting (sacct says that accounting storage is disabled): set "
    "AccountingStorageType=accounting_storage/slurmdbd, or tell Tidegate to do without accounting"
)


def arguments(
    separator: str, since: datetime, until: datetime, user: str | None, names: Collection[str] | None
) -> list[str]:
    """Allocations without steps, and all of one id: what ran before a requeue, too."""
    return [
        "--allocations",
        "--duplicates",
        "--parsable",
        f"--delimiter={separator}",
        f"--starttime=uts{int(since.timestamp())}",
        f"--endtime=uts{int(until.timestamp())}",
        *([f"--user={user}"] if user else []),
        *([f"--name={','.join(names)}"] if names else []),
        "--format=" + ",".join(COLUMNS),
    ]


def parse(answer: str, separator: str, zone: ZoneInfo | None) -> Listed[AccountingRow] | NoAnswer:
    """What a sacct that ended with 0 says. A row that cannot be read is skipped, and kept as text."""
    table = text.table(answer, separator, COLUMNS)
    if isinstance(table, str):
        return NoAnswer(f"sacct could not be read: {table}")
    rows, skipped = [], []
    for fields in table.rows:
        row = _row(fields, zone)
        if row is None:
            skipped.append("|".join(fields))
        else:
            rows.append(row)
    return Listed(tuple(rows), tuple(skipped))


def _row(fields: tuple[str, ...], zone: ZoneInfo | None) -> AccountingRow | None:
    field = dict(zip(COLUMNS, fields, strict=True))
    id, state = parse_id(field["JobID"]), text.state(field["State"])
    if id is None or id.step or state is None:
        return None
    submitted, start, end = (text.moment(field[name], zone) for name in ("Submit", "Start", "End"))
    partition = text.something(field["Partition"])
    return AccountingRow(
        id=field["JobID"].strip(),
        name=field["JobName"],
        comment=text.something(field["Comment"]),
        user=text.something(field["User"]),
        state=state.word,
        cancelled_by=state.cancelled_by,
        exit=text.exit_pair(field["ExitCode"]),
        reason=text.something(field["Reason"]),
        submitted_at=submitted.at,
        start=start.at,
        end=end.at,
        elapsed=text.duration(field["ElapsedRaw"]),
        suspended=text.duration(field["Suspended"]),
        nodes=text.something(field["NodeList"]),
        tres=text.something(field["AllocTRES"]),
        half_filled=partition is None and field["JobName"] == "allocation",
        doubtful=text.doubtful(submitted_at=submitted, start=start, end=end),
    )
