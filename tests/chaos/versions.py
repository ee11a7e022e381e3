"""All versions of a job's record, as its event log makes them, and which of them a request can have met."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.api.domain import replay
from shared.contracts.events import decode_event
from shared.lifecycle.record import JobRecord
from tests.chaos.person import VERBS
from tests.chaos.stand import Stand

_LOG: Final = """
SELECT job, type, body, inputs, at, epoch, seq FROM api.events WHERE job = ANY($1) ORDER BY job, epoch, seq
"""
_RECORDS: Final = "SELECT id, record::text AS record FROM api.jobs WHERE id = ANY($1)"
_SAME: Final = (
    "state",
    "desired_state",
    "seq",
    "epoch",
    "attempt",
    "end_reason",
    "exit",
    "retries",
    "hold",
    "pipeline",
)


@dataclass(frozen=True)
class Version:
    """A record and the moment in which it was decided, before it was committed."""

    record: JobRecord
    since: float


@dataclass(frozen=True)
class Asked:
    """A person's command in the log: when the api got it, and which version it made."""

    verb: str
    force: bool
    at: float
    version: int


class Versions:
    """One job's."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.all: list[Version] = []
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        record = first = decode_event(rows[0]["body"]).job
        for number, row in enumerate(rows):
            inputs = json.loads(row["inputs"])
            if number:
                record = replay(record, [(inputs, row["at"], row["epoch"])])
            self.wrong += [f"{first.id}: version {row['seq']}: {what}" for what in _differences(record, row)]
            for one in inputs:
                if one["kind"] in VERBS:
                    at = row["at"].fromisoformat(one["at"]).timestamp()
                    self.asked.append(Asked(one["kind"], bool(one.get("force")), at, number))
            self.all.append(Version(record, row["at"].timestamp()))

    @property
    def last(self) -> JobRecord:
        return self.all[-1].record

    def met(self, sent: float, answered: float) -> list[JobRecord]:
        """Those that a request of that time can have found under the row's lock. A version is committed after it was
        decided, and before the one after the next is decided."""
        return [
            version.record
            for number, version in enumerate(self.all)
            if version.since <= answered and (number + 2 >= len(self.all) or self.all[number + 2].since >= sent)
        ]

    def deleted_by(self, moment: float) -> bool:
        """Whether somebody was told so before that."""
        return any(version.record.deleted and version.since <= moment for version in self.all)

    def pauses_and_stops(self, attempt: int) -> set[str]:
        """What was asked of an attempt."""
        return {one.verb for one in self.asked if self.all[one.version].record.attempt == attempt} & {"stop", "pause"}


def versions(stand: Stand, jobs: Sequence[str]) -> dict[str, Versions]:
    """Those of each job, deleted or not."""
    (rows,) = stand.rows((_LOG, list(jobs)))
    of_job = defaultdict(list)
    for row in rows:
        of_job[row["job"]].append(row)
    return {job: Versions(of_job[job]) for job in jobs if job in of_job}


def folds_to_something_else(stand: Stand, told: dict[str, Versions]) -> Iterator[str]:
    """Records that are not what their logs give, field by field."""
    (records,) = stand.rows((_RECORDS, list(told)))
    for row in records:
        folded, record = dict(told[row["id"]].last), dict(JobRecord.model_validate_json(row["record"]))
        for name in record:
            if folded[name] != record[name]:
                yield f"{row['id']}: its log gives {name} as {folded[name]!r}, and the record has {record[name]!r}"


def _differences(record: JobRecord, row: Any) -> Iterator[str]:
    """An event says what its version is."""
    said = decode_event(row["body"]).job
    for name in _SAME:
        if getattr(said, name) != getattr(record, name):
            yield f"its event says {name} {getattr(said, name)!r}, and the log gives {getattr(record, name)!r}"
