"""What a real cluster printed (Slurm 22.05.8), as the client would have read it: one observation per recorded moment.

The samples were recorded with other columns and `|` between them; they are put into the columns that are asked for
now, value by value. Their times are local ones of a cluster in UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from shared.backends.slurm import accounting, queue
from shared.backends.slurm.rows import AccountingRow, Listed, QueueRow

FOLDER = Path(__file__).parent / "samples"
ZONE = ZoneInfo("UTC")
SEPARATOR = "@cut@"

# The columns of `-o %i|%F|%K|%t|%T|%r|%R|%u|%P|%j|%S|%e|%l|%M|%V|%b|%Q|%E`, as far as they are asked for now.
_SQUEUE = ["JobArrayID", "F", "K", "t", "State", "Reason", "R", "UserName", "Partition", "Name"]
_SQUEUE += ["StartTime", "EndTime", "TimeLimit", "TimeUsed", "SubmitTime", "b", "Q", "E"]
_MORE = {"Comment": "comment", "RestartCnt": "restart_cnt", "exit_code": "exit_code", "NodeList": "nodes"}
_MORE |= {"tres-alloc": "tres_alloc_str"}


@dataclass(frozen=True)
class Command:
    """As typed, and what it printed."""

    typed: str
    stdout: str
    stderr: str
    code: int | None


def commands(file: str) -> list[Command]:
    """Everything that was typed in one sample."""
    found: list[Command] = []
    for part in re.split(r"(?m)^\$ ", (FOLDER / file).read_text())[1:]:
        typed, _, rest = part.partition("\n")
        end = re.search(r"\[rc=(\d+) [0-9.]+s\]", rest)
        body = rest[: end.start()] if end else rest
        lines = body.splitlines(keepends=True)
        stderr = "".join(line.removeprefix("stderr: ") for line in lines if line.startswith("stderr: "))
        stdout = "".join(line for line in lines if not line.startswith("stderr: "))
        found.append(Command(typed, stdout, stderr, int(end[1]) if end else None))
    return found


def queue_answer(*rows: Mapping[str, str]) -> str:
    """What squeue would have printed of these rows."""
    return _answer(queue.COLUMNS, rows)


def accounting_answer(*rows: Mapping[str, str]) -> str:
    """What sacct would have printed of these rows."""
    return _answer({name: name for name in accounting.COLUMNS}, rows)


def queue_rows(file: str) -> list[QueueRow]:
    """Each line of squeue in a sample; what that squeue was not asked for is taken from the JSON of the same moment."""
    rows = []
    ran = commands(file)
    for at, command in enumerate(ran):
        if not command.typed.startswith("squeue -h") or "|" not in command.typed:
            continue
        for line in command.stdout.splitlines():
            row = dict(zip(_SQUEUE, line.split("|"), strict=True))
            more = _json_of(ran[at + 1 : at + 5], row["JobArrayID"])
            row |= {column: str(more[name]) for column, name in _MORE.items() if name in more}
            rows.append(row)
    listed = queue.parse(queue_answer(*rows), SEPARATOR, ZONE)
    assert isinstance(listed, Listed)
    assert not listed.skipped
    return list(listed.rows)


def accounting_rows(file: str) -> list[AccountingRow]:
    """Each line of `sacct -X -D` in a sample, in order: the same job at several moments, its segments one by one."""
    rows = []
    for command in commands(file):
        if command.typed.startswith("sacct -X -D"):
            columns = command.typed.partition("--format=")[2].split(",")
            for line in command.stdout.splitlines():
                row = dict(zip(columns, line.split("|"), strict=True))
                rows.append({**row, "ElapsedRaw": row["Elapsed"]})
    listed = accounting.parse(accounting_answer(*rows), SEPARATOR, ZONE)
    assert isinstance(listed, Listed)
    assert not listed.skipped
    return list(listed.rows)


def _answer(titles: Mapping[str, str], rows: Iterable[Mapping[str, str]]) -> str:
    lines = [titles, *({column: row.get(column, "") for column in titles} for row in rows)]
    return "".join("".join(field + SEPARATOR for field in line.values()) + "\n" for line in lines)


def _json_of(ran: list[Command], id: str) -> dict[str, Any]:
    number = id.partition("_")[0]
    for command in ran:
        if command.typed.startswith("squeue --json") and number in command.typed and command.stdout.startswith("{"):
            found: dict[str, Any] = json.loads(command.stdout.splitlines()[0])
            return found
        if command.typed.startswith("squeue -h"):
            break
    return {}
