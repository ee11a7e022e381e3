"""From what the local backend shows to facts, by a table over its words; and what a job record asks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from shared.backends.clusters import LOCAL
from shared.backends.local.records import ExitRecord
from shared.backends.local.sightings import LocalState, Seen
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.facts import SegmentKey
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import Desired

RUNNING_WORD: Final = "running"
EXITED_WORD: Final = "exited"


@dataclass(frozen=True, slots=True)
class EndRow:
    """What a backend's word about an end means. `told`: it is an end of the command, so it is a fact."""

    told: bool
    reason: EndReason | None = None
    reason_if_never_started: EndReason | None = None


ENDS: Final[Mapping[str | None, EndRow]] = MappingProxyType(
    {
        None: EndRow(True),
        "time_limit": EndRow(True, EndReason.TIME_LIMIT),
        "out_of_memory": EndRow(True, EndReason.OUT_OF_MEMORY),
        "command_not_found": EndRow(True, EndReason.COMMAND_NOT_FOUND),
        "cannot_execute": EndRow(True, EndReason.COMMAND_NOT_EXECUTABLE),
        "working_directory_missing": EndRow(True, EndReason.CONFIGURATION),
        "working_directory_unreachable": EndRow(True, EndReason.CONFIGURATION),
        "isolation_failed": EndRow(True, EndReason.CONFIGURATION),
        "supervisor_failed": EndRow(True, EndReason.LOST, EndReason.CONFIGURATION),
        # Runners that exit 75 without starting the command: the launcher's vote says that nothing ran.
        "revoked": EndRow(False),
        "attempt_claimed": EndRow(False),
        "stopped_before_start": EndRow(False),
    }
)
"""Total over the documented words. A word that is not here is `unknown`: counted, logged once, and never an end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to tell about a submission. `fact` holds the fact's own fields, as JSON holds them."""

    submission: str
    kind: str
    job: str
    attempt: int
    fact: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A word that the table does not know."""

    word: str


def findings(seen: Seen) -> tuple[Finding, ...] | Unknown:
    """What a sighting says. The newest alone: an end holds the start."""
    if seen.state is LocalState.EXITED and seen.exit is not None:
        row = ENDS.get(seen.exit.reason)
        if row is None:
            return Unknown(str(seen.exit.reason))
        return (_finding(seen, "exited", _exited(seen.exit, row)),) if row.told else ()
    if seen.state is LocalState.RUNNING and seen.started is not None:
        running = {"started_at": seen.started.started_at.isoformat(), "raw_state": RUNNING_WORD}
        return (_finding(seen, "seen_running", running),)
    return ()


def is_alive(seen: Seen) -> bool:
    """Whether its supervisor was there at the observation."""
    return seen.state in (LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.RUNNING)


def tenant_of(seen: Seen) -> str | None:
    """Whose it is, as the records say."""
    if seen.spec is not None:
        return seen.spec.tenant
    return None if seen.exit is None else seen.exit.tenant


def _finding(seen: Seen, kind: str, fields: Mapping[str, Any]) -> Finding:
    segment = SegmentKey(submission=seen.submission, restart=0, created_at=_created_at(seen))
    head = {"tenant": tenant_of(seen), "segment": segment.model_dump(mode="json")}
    return Finding(seen.submission, kind, seen.job, seen.attempt, {**head, **fields})


def _exited(end: ExitRecord, row: EndRow) -> Mapping[str, Any]:
    reason = row.reason if end.ran or row.reason_if_never_started is None else row.reason_if_never_started
    return {
        "code": end.code,
        "signal": end.signal,
        "started_at": None if end.started_at is None else end.started_at.isoformat(),
        "ended_at": end.ended_at.isoformat(),
        "stop_recorded": end.stop_seen_at is not None,
        "reason": None if reason is None else reason.value,
        "message": end.sentence,
        "raw_state": end.reason or EXITED_WORD,
        "self_reported": end.self_reported,
    }


def _created_at(seen: Seen) -> datetime:
    """When the backend took it; the earliest of its times that is left, where that record is gone."""
    if seen.spec is not None:
        return seen.spec.accepted_at
    if seen.claim is not None:
        return seen.claim.claimed_at
    if seen.started is not None:
        return seen.started.started_at
    assert seen.exit is not None, "a sighting has at least one record"
    return seen.exit.started_at or seen.exit.ended_at


@dataclass(frozen=True, slots=True)
class Watch:
    """What a record asks: whether the end of this attempt is owed, by what name the
    backend of its cluster knows it, after how long
    without use it is to be suspended (None: never), and not before when."""

    job: str
    attempt: int
    tenant: str
    epoch: int
    seq: int
    owed: bool
    submission: str | None
    accepted_at: datetime | None
    cluster: str = LOCAL
    idle_seconds: int | None = None
    snoozed_until: datetime | None = None

    @property
    def key(self) -> tuple[str, int]:
        """One per job and attempt."""
        return (self.job, self.attempt)

    @property
    def seen(self) -> tuple[int, int]:
        """The record's version."""
        return (self.epoch, self.seq)

    @property
    def launched(self) -> bool:
        """Whether the attempt ever was in the backend's hands: then its row stays, so that a late event is dropped."""
        return self.accepted_at is not None or self.submission is not None


def watch(record: JobRecord) -> Watch:
    """Read what the record asks of the watcher."""
    seen = picture(record.current)
    vote = seen.launcher_sealed
    accepted_at = seen.accepted.at if seen.accepted is not None else None if vote is None else vote.at
    desk = record.workstation if record.desired_state is Desired.RUN else None
    return Watch(
        job=record.id,
        attempt=record.attempt,
        tenant=record.tenant,
        epoch=record.epoch,
        seq=record.seq,
        owed=Duty.OBSERVE in duties(record),
        submission=None if seen.latest is None else seen.latest.submission,
        accepted_at=accepted_at,
        cluster=record.backend.cluster or LOCAL,
        idle_seconds=None if desk is None else desk.idle_suspend_seconds,
        snoozed_until=None if desk is None else desk.snoozed_until,
    )
