"""The records of the local backend, typed, for those who read them.

Reading is strict about what a record must say and tolerant of everything else: a torn, empty or foreign file is no
record (None), unknown fields are ignored, and nothing but a whole exit record is ever an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that pid reuse and a reboot cannot be taken for."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def read(cls, value: object) -> Self | None:
        """None unless all three are there."""
        if not isinstance(value, dict):
            return None
        pid, ticks, boot = value.get("pid"), value.get("start_ticks"), value.get("boot_id")
        if type(pid) is not int or type(ticks) is not int or not isinstance(boot, str):
            return None
        return cls(pid, ticks, boot)

    def fields(self) -> dict[str, object]:
        """As `shared.backends.local.processes` takes it."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}


@dataclass(frozen=True, slots=True)
class SpecRecord:
    """The intent to run, written by the host before it forks. Holds no values of environment variables."""

    submission: str
    tenant: str
    run: str
    directory: str
    command: tuple[str, ...]
    devices: tuple[int, ...]
    accepted_at: datetime

    @classmethod
    def read(cls, fields: Fields) -> Self | None:
        """None unless it says who runs what where."""
        texts = [fields.get(name) for name in ("submission", "tenant", "run", "directory")]
        command, devices, accepted = (
            _texts(fields.get("command")),
            _ints(fields.get("devices")),
            _time(fields, "accepted_at"),
        )
        if command is None or devices is None or accepted is None:
            return None
        submission, tenant, run, directory = texts
        if not (isinstance(submission, str) and isinstance(tenant, str) and isinstance(run, str)):
            return None
        return cls(submission, tenant, run, str(directory), command, devices, accepted)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """This submission, and no other, may run the attempt's command."""

    submission: str
    supervisor: ProcessIdentity
    claimed_at: datetime

    @classmethod
    def read(cls, fields: Fields) -> Self | None:
        """None unless it names the submission and its supervisor."""
        submission, claimed = fields.get("submission"), _time(fields, "claimed_at")
        supervisor = ProcessIdentity.read(fields.get("supervisor"))
        if not isinstance(submission, str) or supervisor is None or claimed is None:
            return None
        return cls(submission, supervisor, claimed)


@dataclass(frozen=True, slots=True)
class StartedRecord:
    """The command is up: its exec has succeeded."""

    submission: str
    supervisor: ProcessIdentity
    command: ProcessIdentity | None
    started_at: datetime
    devices: tuple[int, ...]

    @classmethod
    def read(cls, fields: Fields) -> Self | None:
        """None unless it says when, and under which supervisor. A command that ended at once has no identity."""
        submission, started, devices = (
            fields.get("submission"),
            _time(fields, "started_at"),
            _ints(fields.get("devices")),
        )
        supervisor = ProcessIdentity.read(fields.get("supervisor"))
        if not isinstance(submission, str) or supervisor is None or started is None or devices is None:
            return None
        return cls(submission, supervisor, ProcessIdentity.read(fields.get("command")), started, devices)


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How it ended; written when nothing of it was left.

    `ran` is False when the command never started: `reason` says why (command_not_found, cannot_execute,
    working_directory_missing, working_directory_unreachable, isolation_failed, revoked, attempt_claimed,
    stopped_before_start, supervisor_failed). Of a command that ran, `reason` is None, time_limit, out_of_memory or
    supervisor_failed, and exactly one of `code` and `signal` is set but for the last.
    """

    submission: str
    job: str
    attempt: int
    tenant: str
    ran: bool
    code: int | None
    signal: int | None
    reason: str | None
    sentence: str | None
    started_at: datetime | None
    ended_at: datetime
    duration_ms: int
    stop_seen_at: datetime | None
    devices: tuple[int, ...]
    max_rss_bytes: int | None
    self_reported: bool

    @classmethod
    def read(cls, fields: Fields) -> Self | None:
        """None unless it is a whole end: which attempt, whether it ran, how it ended, when."""
        submission, job, tenant = fields.get("submission"), fields.get("job"), fields.get("tenant")
        attempt, duration, ran = fields.get("attempt"), fields.get("duration_ms"), fields.get("ran")
        code, signal, reason = fields.get("code"), fields.get("signal"), fields.get("reason")
        ended, started, devices = _time(fields, "ended_at"), _time(fields, "started_at"), _ints(fields.get("devices"))
        if not (isinstance(submission, str) and isinstance(job, str) and isinstance(tenant, str)):
            return None
        if type(attempt) is not int or type(duration) is not int or duration < 0 or not isinstance(ran, bool):
            return None
        if not (_is_int_or_none(code) and _is_int_or_none(signal) and (reason is None or isinstance(reason, str))):
            return None
        if ended is None or devices is None or (ran and started is None):
            return None
        if reason is None and ((code is None) == (signal is None) or not ran):
            return None
        sentence, max_rss = fields.get("sentence"), fields.get("max_rss_bytes")
        return cls(
            submission=submission,
            job=job,
            attempt=attempt,
            tenant=tenant,
            ran=ran,
            code=code if isinstance(code, int) else None,
            signal=signal if isinstance(signal, int) else None,
            reason=reason,
            sentence=sentence if isinstance(sentence, str) else None,
            started_at=started,
            ended_at=ended,
            duration_ms=duration,
            stop_seen_at=_time(fields, "stop_seen_at"),
            devices=devices,
            max_rss_bytes=max_rss if type(max_rss) is int else None,
            self_reported=fields.get("self_reported") is not False,
        )


def read_stop_seen(fields: Fields) -> datetime | None:
    """When the supervisor saw the stop request, from its record of that."""
    return _time(fields, "stop_seen_at")


def read_killed(fields: Fields) -> tuple[ProcessIdentity, datetime] | None:
    """The supervisor that somebody set out to kill, and when."""
    supervisor, at = ProcessIdentity.read(fields.get("supervisor")), _time(fields, "at")
    return None if supervisor is None or at is None else (supervisor, at)


def _time(fields: Fields, name: str) -> datetime | None:
    value = fields.get(name)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None


def _ints(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return tuple(value)


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)


def _is_int_or_none(value: object) -> bool:
    return value is None or type(value) is int
