"""The records of the runner in an attempt's directory, typed, for those who read them; and the request it reads.

Reading is strict about what a record must say and tolerant of everything else: a torn, empty or foreign file is no
record, unknown fields are ignored, and nothing but a whole exit record of who holds the claim is ever an end. All of it
is self-reported: the job runs as the same account and could have written it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

from shared.backends.local.files import read_record, sync_directory, temporary_beside, write_whole
from shared.backends.slurm import layout

Fields = Mapping[str, object]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_MAX = 253_402_300_799_999  # the year 9999
_SIGNAL_MAX = 127


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the batch script: a submission by one call of sbatch (token), its Slurm job, and how often it was
    queued again. `node` is where it ran."""

    submission: str
    token: str
    job: str
    attempt: int
    tenant: str
    slurm_job_id: str
    restart: int
    node: str | None

    @classmethod
    def read(cls, fields: Fields) -> Self | None:
        """None unless it says whose run it is."""
        submission, token, job = fields.get("submission"), fields.get("token"), fields.get("job")
        tenant, slurm_job_id, node = fields.get("tenant"), fields.get("slurm_job_id"), fields.get("node")
        attempt, restart = _count(fields, "attempt"), _count(fields, "restart")
        if not (isinstance(submission, str) and isinstance(token, str) and isinstance(job, str)):
            return None
        if not (isinstance(tenant, str) and isinstance(slurm_job_id, str)) or attempt is None or restart is None:
            return None
        where = node if isinstance(node, str) and node else None
        return cls(submission, token, job, attempt, tenant, slurm_job_id, restart, where)

    def is_of(self, other: Run) -> bool:
        """Is it of the same Slurm job, before or after a requeue?"""
        return (self.submission, self.token, self.slurm_job_id) == (other.submission, other.token, other.slurm_job_id)


@dataclass(frozen=True, slots=True)
class Claim:
    """This run, and no other but later ones of the same Slurm job, may run the attempt's command."""

    run: Run
    claimed_at: datetime


@dataclass(frozen=True, slots=True)
class Started:
    """The command was about to be started; how that went, only an exit record says."""

    run: Run
    started_at: datetime


@dataclass(frozen=True, slots=True)
class StopSeen:
    """When the runner first saw that an end is wanted, before it did anything about it. `by` a `request` of ours, or a
    `signal` of Slurm's: cancelled, time limit, preempted, requeued."""

    run: Run
    at: datetime
    by: Literal["request", "signal"]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended.

    `ran` is False when the command never started: `reason` says why (command_not_found, cannot_execute,
    working_directory_missing, working_directory_unreachable, environment_missing, revoked, stopped_before_start,
    supervisor_failed). Of a command that ran, `reason` is None, supervisor_failed (how it ended was lost), or
    superseded (a later run of the same Slurm job had claimed, so this one was killed). Exactly one of `code` and
    `signal` is set.
    `ended_at` is `started_at` and the duration on a clock that nobody sets.
    """

    run: Run
    ran: bool
    code: int | None
    signal: int | None
    reason: str | None
    started_at: datetime | None
    ended_at: datetime
    duration: timedelta
    stop_seen: StopSeen | None


@dataclass(frozen=True, slots=True)
class Records:
    """All that is there of one attempt: what the holder of the claim, one Slurm job, has written, by restart."""

    claims: tuple[Claim, ...] = ()
    """The first one made, then by restart."""
    started: Mapping[int, Started] = field(default_factory=dict)
    stop_seen: Mapping[int, StopSeen] = field(default_factory=dict)
    exits: Mapping[int, Exit] = field(default_factory=dict)
    claim_unreadable: bool = False
    """Something lies where the first claim would, and says not whose it is. Nothing can run here any more."""
    stop_requested: bool = False
    """Whether a request of ours for the command's end lies there."""

    @property
    def holder(self) -> Run | None:
        """Who took the first claim: the one Slurm job that runs this attempt."""
        return self.claims[0].run if self.claims else None


def read(attempt_directory: str) -> Records:
    """Raises OSError when it cannot be known; no directory is no records."""
    try:
        names = os.listdir(attempt_directory)
    except FileNotFoundError:
        return Records()
    first = read_record(f"{attempt_directory}/{layout.CLAIM}")
    claim = None if first is None else read_claim(first)
    if claim is None:
        return Records(claim_unreadable=layout.CLAIM in names)
    claims, started, stop_seen, exits = {}, {}, {}, {}
    for name in names:
        parsed = layout.split_record_name(name)
        fields = None if parsed is None or name == layout.CLAIM else read_record(f"{attempt_directory}/{name}")
        if parsed is None or fields is None:
            continue
        kind, restart = parsed
        run = Run.read(fields)
        if run is None or run.restart != restart or not run.is_of(claim.run):
            continue
        if kind == layout.CLAIM and (later := read_claim(fields)) is not None:
            claims[restart] = later
        elif kind == layout.STARTED and (start := read_started(fields)) is not None:
            started[restart] = start
        elif kind == layout.STOP_SEEN and (seen := read_stop_seen(fields)) is not None:
            stop_seen[restart] = seen
        elif kind == layout.EXIT and (end := read_exit(fields)) is not None:
            exits[restart] = end
    ordered = (claim, *(claims[restart] for restart in sorted(claims)))
    return Records(ordered, started, stop_seen, exits, stop_requested=layout.STOP in names)


def read_claim(fields: Fields) -> Claim | None:
    """None unless it says whose it is, and since when."""
    run, at = Run.read(fields), _time(fields, "claimed_ms")
    return None if run is None or at is None else Claim(run, at)


def read_started(fields: Fields) -> Started | None:
    """None unless it says of which run, and when."""
    run, at = Run.read(fields), _time(fields, "started_ms")
    return None if run is None or at is None else Started(run, at)


def read_stop_seen(fields: Fields) -> StopSeen | None:
    """None unless it says of which run, when, and by what."""
    run, at, by = Run.read(fields), _time(fields, "stop_seen_ms"), fields.get("by", fields.get("stop_seen_by"))
    if run is None or at is None:
        return None
    return StopSeen(run, at, "request" if by == "request" else "signal")


def read_exit(fields: Fields) -> Exit | None:
    """None unless it is a whole end: of which run, whether it ran, how it ended, when."""
    run, ran, reason = Run.read(fields), fields.get("ran"), fields.get("reason")
    code, signal, duration = _count(fields, "code"), _count(fields, "signal"), _count(fields, "duration_ms")
    started, ended = _time(fields, "started_ms"), _time(fields, "ended_ms")
    if run is None or not isinstance(ran, bool) or not (reason is None or isinstance(reason, str)):
        return None
    if ended is None or duration is None or duration > _MILLISECONDS_MAX or (ran and started is None):
        return None
    if (code is None) == (signal is None) or (code or 0) > 255 or (signal or 0) > _SIGNAL_MAX or signal == 0:
        return None
    if not ran and (reason is None or code is None):
        return None
    return Exit(
        run=run,
        ran=ran,
        code=code,
        signal=signal,
        reason=reason,
        started_at=started if ran else None,
        ended_at=ended,
        duration=timedelta(milliseconds=duration),
        stop_seen=read_stop_seen(fields),
    )


def request_stop(
    attempt_directory: str, kind: Literal["stop", "pause"], signal: str, grace_seconds: int, asked_at: datetime
) -> None:
    """Ask the runner for the command's end: `signal` (a name without SIG) now, KILL after the grace; 0 is KILL now.

    In one step, replacing an earlier request: a stop takes over from a pause, a pause never from a stop, and of two of
    a kind the earlier deadline counts. Tell the runner of it by `script.NUDGE_SIGNAL`, or it takes LOOK_SECONDS.
    """
    if not (signal.isascii() and signal.isalnum() and signal.isupper()) or grace_seconds < 0:
        raise ValueError(f"a stop is a signal's name, such as TERM, and a grace of 0 s or more, not {signal!r}")
    asked_ms = (asked_at - _EPOCH) // timedelta(milliseconds=1)
    path = f"{attempt_directory}/{layout.STOP}"
    temporary = temporary_beside(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_whole(fd, f"{kind} {signal} {grace_seconds:d} {asked_ms:d}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    sync_directory(attempt_directory)


def _time(fields: Fields, name: str) -> datetime | None:
    value = _count(fields, name)
    return _EPOCH + timedelta(milliseconds=value) if value and value <= _MILLISECONDS_MAX else None


def _count(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    return value if type(value) is int and value >= 0 else None
