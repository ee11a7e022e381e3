"""All versions of a job's record, as its event log makes them, and which of them a request can have met."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    """A record, the moment in which it was decided, before it was committed, and the name of its event."""

    record: JobRecord
    since: float
    event: str
    """As it was told."""


@dataclass(frozen=True)
class Asked:
    """A person's command in the log: when the api got it, and which version it made."""

    verb: str
    force: bool
    by_admin: bool
    at: float
    version: int
    until: float | None = None
    """Of a snooze."""


@dataclass(frozen=True)
class Suspended:
    """A suspension by policy in the log: of which attempt, when it was asked for, and which version it made."""

    attempt: int
    at: float
    version: int


class Versions:
    """One job's."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.all: list[Version] = []
        self.asked: list[Asked] = []
        self.suspended: list[Suspended] = []
        self.wrong: list[str] = []
        record = first = decode_event(rows[0]["body"]).job
        for number, row in enumerate(rows):
            inputs = json.loads(row["inputs"])
            if number:
                record = replay(record, [(inputs, row["at"], row["epoch"])])
            self.wrong += [f"{first.id}: version {row['seq']}: {what}" for what in _differences(record, row)]
            for one in inputs:
                if one["kind"] in VERBS:
                    self.asked.append(_asked(one, number))
                elif one["kind"] == "policy_pause":
                    self.suspended.append(Suspended(one["attempt"], _moment(one["at"]), number))
            self.all.append(Version(record, row["at"].timestamp(), row["type"]))

    @property
    def told(self) -> list[tuple[int, int, str]]:
        """Its events, as epoch, number and name."""
        return [(version.record.epoch, version.record.seq, version.event) for version in self.all]

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

    def asked_of(self, attempt: int, *, until: int | None = None) -> list[Asked]:
        """The pauses and stops of an attempt, all or until a version."""
        last = len(self.all) if until is None else until
        there = [one for one in self.asked if one.verb in ("stop", "pause") and one.version <= last]
        return [one for one in there if self.all[one.version].record.attempt == attempt]

    def suspended_in(self, attempt: int) -> bool:
        """Whether a policy has paused that attempt."""
        return any(one.attempt == attempt for one in self.suspended)


def versions(stand: Stand, jobs: Sequence[str]) -> dict[str, Versions]:
    """Those of each job, deleted or not."""
    (rows,) = stand.rows((_LOG, list(jobs)))
    of_job = defaultdict(list)
    for row in rows:
        of_job[row["job"]].append(row)
    return {job: Versions(of_job[job]) for job in jobs if job in of_job}


def shown_otherwise(stand: Stand, told: dict[str, Versions]) -> Iterator[str]:
    """Jobs of which subscribers were shown anything but what the log has, or in another order; one event may be shown
    again."""
    shown: dict[str, dict[tuple[int, int, str], None]] = defaultdict(dict)
    for message in stand.events_shown():
        record = decode_event(message.data).job
        shown[record.id][record.epoch, record.seq, message.subject.rpartition(".")[2]] = None
    for job, versions in told.items():
        if list(shown[job]) != versions.told:
            others = sorted(set(shown[job]) ^ set(versions.told))
            yield f"{job}: subscribers were shown {len(shown[job])} events, its log has {len(versions.told)}: {others}"


def folds_to_something_else(stand: Stand, told: dict[str, Versions]) -> Iterator[str]:
    """Records that are not what their logs give, field by field."""
    (records,) = stand.rows((_RECORDS, list(told)))
    for row in records:
        folded, record = dict(told[row["id"]].last), dict(JobRecord.model_validate_json(row["record"]))
        for name in record:
            if folded[name] != record[name]:
                yield f"{row['id']}: its log gives {name} as {folded[name]!r}, and the record has {record[name]!r}"


def _asked(given: dict[str, Any], number: int) -> Asked:
    force, by_admin = bool(given.get("force")), bool(given.get("by_admin"))
    until = _moment(given["until"]) if "until" in given else None
    return Asked(given["kind"], force, by_admin, _moment(given["at"]), number, until)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _differences(record: JobRecord, row: Any) -> Iterator[str]:
    """An event says what its version is."""
    said = decode_event(row["body"]).job
    for name in _SAME:
        if getattr(said, name) != getattr(record, name):
            yield f"its event says {name} {getattr(said, name)!r}, and the log gives {getattr(record, name)!r}"
