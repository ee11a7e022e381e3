"""What the event log must say of each job: every state once, one end, each step told once what came before it; and the
record is what its log gives."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from services.api.domain import replay
from shared.contracts.events import decode_event
from shared.lifecycle.record import JobRecord
from tests.chaos.load import Load
from tests.chaos.stand import Stand
from tests.e2e.stacks import TERMINAL

_ENDS: Final = tuple(state.lower() for state in TERMINAL)
_ONWARDS: Final = ("queued", "submitted", "pending", "running", *_ENDS)
_AFTER_THE_END: Final = {"evidence", "reset"}
_UNREACHED: Final = (["queued", "stopped"], ["queued", "held", "stopped"])
_UPSTREAM: Final = {"upstream_done", "upstream_failed"}

_LOG: Final = """
SELECT job, position, type, body, inputs, at, epoch FROM api.events WHERE job = ANY($1) ORDER BY job, epoch, seq
"""
_RECORDS: Final = "SELECT id, record::text AS record FROM api.jobs WHERE id = ANY($1)"


class Log:
    """The events of one job in their order, and its record."""

    def __init__(self, rows: Sequence[Any], record: str) -> None:
        self.record = JobRecord.model_validate_json(record)
        self.words = [row["type"] for row in rows if row["type"] != "reset"]
        self.restored = len({row["epoch"] for row in rows}) > 1
        self._rows = rows
        self._inputs = [json.loads(row["inputs"]) for row in rows]

    def folded(self) -> JobRecord:
        """What `advance` makes of the first version and every logged input."""
        first, *rest = self._rows
        log = [(inputs, row["at"], row["epoch"]) for row, inputs in zip(rest, self._inputs[1:], strict=True)]
        return replay(decode_event(first["body"]).job, log)

    def told(self) -> list[tuple[str, int]]:
        """What it was told of the steps before it, each with the event's place among its tenant's."""
        return [
            (one["kind"], row["position"])
            for row, inputs in zip(self._rows, self._inputs, strict=True)
            for one in inputs
            if one["kind"] in _UPSTREAM
        ]

    def end(self) -> int:
        """The place of its end among its tenant's events."""
        return next(int(row["position"]) for row in self._rows if row["type"] in _ENDS)


def what_is_wrong_with_the_logs(stand: Stand, load: Load) -> list[str]:
    """Complaints about the logs of jobs that have all ended."""
    rows, records = stand.rows((_LOG, load.jobs), (_RECORDS, load.jobs))
    of_job = defaultdict(list)
    for row in rows:
        of_job[row["job"]].append(row)
    logs = {row["id"]: Log(of_job[row["id"]], row["record"]) for row in records}
    found = []
    for job, log in logs.items():
        found += [f"{job}: {what}" for what in _one_way(log)]
        found += [f"{job}: {what}" for what in _folds_to_something_else(log)]
    for steps in load.pipelines.values():
        found += _told_once([logs[job] for job in steps])
    return found


def _folds_to_something_else(log: Log) -> Iterator[str]:
    folded, record = dict(log.folded()), dict(log.record)
    for name in record:
        if folded[name] != record[name]:
            yield f"a replay of its log gives {name} as {folded[name]!r}, and the record has {record[name]!r}"


def _one_way(log: Log) -> Iterator[str]:
    """Each state was entered once and in order, and after the end came only evidence."""
    states = [word for word in log.words if word in _ONWARDS]
    places = [_ONWARDS.index(word) for word in states]
    if places != sorted(set(places)) or sum(word in _ENDS for word in states) != 1:
        yield f"its states were {states}"
    elif states[-1] != log.record.state.lower():
        yield f"its last state is {log.record.state}, and its log ends with {states[-1]}"
    else:
        late = set(log.words[log.words.index(states[-1]) + 1 :])
        if late - _AFTER_THE_END:
            yield f"after its end came {late}"


def _told_once(steps: Sequence[Log]) -> Iterator[str]:
    """A step is told once, when the one before it has succeeded or when one has not; never reached, it has no other
    event. After a restore one may be found that runs, and nothing is decided about it again."""
    failed: Log | None = None
    for before, step in zip((None, *steps), steps, strict=False):
        if failed is None and before is not None and before.record.state != "SUCCEEDED":
            failed = before
        wanted, cause = ("upstream_done", before) if failed is None else ("upstream_failed", failed)
        told = step.told()
        if cause is None:
            right = not told
        else:
            right = [kind for kind, _ in told] == [wanted] and told[0][1] > cause.end()
            right = right or (step.restored and not told and failed is None)
        if not right:
            yield f"{step.record.id}: it was told {told}, and {wanted} once after the end of {cause} is right"
        if failed is not None and step.words not in _UNREACHED:
            yield f"{step.record.id}: it was never reached and has the events {step.words}"
