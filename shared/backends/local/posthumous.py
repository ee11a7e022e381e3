"""The record of an end that a supervisor could not write, because it was killed for not ending its command.

Who kills a supervisor says so before, durably (`kill`): whoever finds out later that nothing of the submission is left
can then tell this end from that of a supervisor that died by itself, of which nobody knows the cause.
"""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime

from shared.backends.local import layout, processes, sweeping, workstation
from shared.backends.local.files import create_record, read_record
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.observer import look
from shared.backends.local.records import ExitRecord, ProcessIdentity, read_killed
from shared.backends.local.sightings import LocalState, Seen

SENTENCE = "it was killed from outside, as its supervisor could not end it in time"


def announce_kill(root: str, submission: str, supervisor: ProcessIdentity) -> None:
    """This supervisor is about to be killed. Survives a power cut; the first to say so counts."""
    record: dict[str, object] = {"submission": submission, "supervisor": supervisor.fields(), "at": utc(now_ms())}
    create_record(layout.record_path(root, submission, layout.KILL), record, durable=True)


def record_end(root: str, submission: str, last_seen_ms: int | None) -> ExitRecord | None:
    """Call it only with the proof that nothing of it is left. What is recorded of its end then, by whomever.

    None, and nothing written, where its supervisor was not killed after a stop request, where its command was not up,
    or where an end lies there that cannot be read. `last_seen_ms` is when something of it was last seen, if the caller
    has seen it: the end is then or at the kill, whichever is later.
    """
    seen = look(root, submission)
    if seen is None or seen.state is not LocalState.GONE:
        return None if seen is None else seen.exit
    record = _end(root, seen, last_seen_ms)
    if record is None:
        return None
    workstation.clear(root, submission)
    create_record(layout.record_path(root, submission, layout.EXIT), record, durable=True)
    ended = look(root, submission)
    return None if ended is None else ended.exit


def _end(root: str, seen: Seen, last_seen_ms: int | None) -> dict[str, object] | None:
    if seen.spec is None or seen.started is None:
        return None
    said = read_record(layout.record_path(root, seen.submission, layout.KILL))
    killed = None if said is None else read_killed(said)
    if killed is None or killed[0] != seen.started.supervisor:
        return None
    request = read_record(layout.record_path(root, seen.submission, layout.STOP)) or {}
    started_ms, killed_ms = _ms(seen.started.started_at), _ms(killed[1])
    ended_ms = max(started_ms, killed_ms, last_seen_ms or 0)
    stop_seen = utc(_ms(seen.stop_seen_at)) if seen.stop_seen_at is not None else request.get("at", utc(killed_ms))
    spec = read_record(layout.record_path(root, seen.submission, layout.SPEC))
    return {
        "submission": seen.submission,
        "job": seen.job,
        "attempt": seen.attempt,
        "tenant": seen.spec.tenant,
        "ran": True,
        "code": None,
        "signal": int(signal.SIGKILL),
        "reason": None,
        "sentence": SENTENCE,
        "started_at": utc(started_ms),
        "ended_at": utc(ended_ms),
        "duration_ms": ended_ms - started_ms,
        "recorded_at": utc(now_ms()),
        "stop_seen_at": stop_seen,
        "devices": list(seen.started.devices),
        "max_rss_bytes": None,
        "self_reported": os.geteuid() != 0 or sweeping.tenant_uid(spec) is None,
        "boot_id": processes.boot_id(),
    }


def _ms(moment: datetime) -> int:
    return round(moment.astimezone(UTC).timestamp() * 1000)
