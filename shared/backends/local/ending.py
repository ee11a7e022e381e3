"""Stopping, killing and releasing, by records and signals alone: no host is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from datetime import UTC, datetime

from shared.backends.local import layout, posthumous, processes, sweeping
from shared.backends.local.files import read_record, write_record
from shared.backends.local.messages import KillAnswer, KillKind, ReleaseAnswer, StopAnswer
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.observer import LocalState, Seen, look
from shared.backends.local.records import ClaimRecord
from shared.backends.local.supervisor import LEAST_PATIENCE_SECONDS, NUDGE

# A supervisor that does not end its command within this time, killed commands included, is taken for broken.
_SUPERVISOR_SECONDS = 10.0
_LOOK_SECONDS = 0.01


def stop(root: str, submission: str, grace_seconds: float, signal_number: int, *, pausing: bool = False) -> StopAnswer:
    """Write the request, then nudge the supervisor. One whose writer dies in between is found within a second."""
    seen = look(root, submission)
    if seen is None:
        return StopAnswer.ABSENT
    if seen.state is LocalState.EXITED:
        return StopAnswer.ENDED
    if seen.state is LocalState.GONE:
        return StopAnswer.GONE
    request: dict[str, object] = {
        "submission": submission,
        "at": utc(now_ms()),
        "grace_seconds": grace_seconds,
        "signal": int(signal_number),
        "pausing": pausing,
    }
    path = layout.record_path(root, submission, layout.STOP)
    if pausing and _is_stopped(path):
        return StopAnswer.ASKED
    write_record(path, request, durable=True)
    _nudge(root, seen)
    if look(root, submission) is None:  # ended and released by another in between: nobody would clear the request away
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return StopAnswer.ASKED


def kill(root: str, submission: str, timeout_seconds: float) -> KillAnswer:
    """SIGKILL to all of it through its supervisor; a supervisor that does not act is killed too, and its rest swept.

    Of a command that was up when its supervisor had to be killed, the record of the end is written here.
    """
    deadline = time.monotonic() + timeout_seconds
    patience: float | None = None
    last_seen_ms: int | None = None
    while time.monotonic() < deadline:
        seen = look(root, submission)
        if seen is not None and seen.state is LocalState.EXITED:
            return KillAnswer(KillKind.ENDED, seen.exit)
        if seen is None or seen.state is LocalState.GONE:
            if _sweep(root, submission) == 0:
                end = None if seen is None else posthumous.record_end(root, submission, last_seen_ms)
                if end is not None:
                    return KillAnswer(KillKind.ENDED, end)
                return KillAnswer(KillKind.ABSENT if seen is None else KillKind.GONE)
            last_seen_ms = now_ms()
        elif patience is None:
            # Asked first, always: a supervisor that nobody has asked to stop may have gone on to another attempt.
            stop(root, submission, 0, signal.SIGKILL)
            patience = time.monotonic() + max(LEAST_PATIENCE_SECONDS, min(_SUPERVISOR_SECONDS, timeout_seconds / 2))
            continue
        elif time.monotonic() > patience:
            _kill_supervisor(root, seen)
            last_seen_ms = now_ms()
        time.sleep(_LOOK_SECONDS)
    return KillAnswer(KillKind.UNCLEAR, sentence=f"{submission} did not end within {timeout_seconds:g} s: ask again")


def release(root: str, submission: str) -> ReleaseAnswer:
    """Move its records away, the telling ones last: what an interrupted release leaves still reads as ended."""
    seen = look(root, submission)
    if seen is None:
        return ReleaseAnswer.RELEASED if _is_released(root, submission) else ReleaseAnswer.ABSENT
    if seen.state not in (LocalState.EXITED, LocalState.GONE):
        return ReleaseAnswer.LIVE
    if seen.state is LocalState.GONE and _sweep(root, submission):
        return ReleaseAnswer.LIVE
    target = f"{root}/{layout.RELEASED}/{datetime.now(UTC):%Y-%m-%d}"
    os.makedirs(target, mode=0o700, exist_ok=True)
    for kind in layout.RECORD_KINDS:
        path = layout.record_path(root, submission, kind)
        try:
            os.rename(path, f"{target}/{os.path.basename(path)}")
        except FileNotFoundError:
            continue
    for kind in layout.WORKSTATION_KINDS:  # of a supervisor that was killed
        with contextlib.suppress(FileNotFoundError):
            os.unlink(layout.record_path(root, submission, kind))
    return ReleaseAnswer.RELEASED


def _is_stopped(path: str) -> bool:
    """Was a stop asked for, which a pause must not take the place of?"""
    before = read_record(path)
    return before is not None and before.get("pausing") is not True


def _sweep(root: str, submission: str) -> int:
    spec = read_record(layout.record_path(root, submission, layout.SPEC))
    return sweeping.sweep(submission, sweeping.tenant_uid(spec))


def _is_released(root: str, submission: str) -> bool:
    released = f"{root}/{layout.RELEASED}"
    return any(
        os.path.lexists(f"{released}/{date}/{submission}.{kind}.json")
        for date in os.listdir(released)
        for kind in layout.RECORD_KINDS
    )


def _kill_supervisor(root: str, seen: Seen) -> None:
    record = seen.claim or seen.started or _claim_of_its_attempt(root, seen)
    if record is None:
        return
    with contextlib.suppress(OSError):  # a full disk keeps no job running: its end is then one that nobody recorded
        posthumous.announce_kill(root, seen.submission, record.supervisor)
    processes.signal_process(record.supervisor.fields(), signal.SIGKILL)


def _nudge(root: str, seen: Seen) -> None:
    record = seen.claim or seen.started or _claim_of_its_attempt(root, seen)
    if record is not None:
        processes.signal_process(record.supervisor.fields(), NUDGE)


def _claim_of_its_attempt(root: str, seen: Seen) -> ClaimRecord | None:
    """The claim that its supervisor took and has not yet put beside the other records."""
    if seen.spec is None:
        return None
    directory = layout.attempt_directory(root, seen.spec.tenant, seen.job, seen.attempt)
    record = read_record(f"{directory}/{layout.CLAIM}")
    claim = None if record is None else ClaimRecord.read(record)
    return claim if claim is not None and claim.submission == seen.submission else None
