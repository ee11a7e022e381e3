"""From sightings on a Slurm cluster to facts. Pure: what is told of one submission, the newest alone for each segment.

Success needs COMPLETED and 0:0. What the runner recorded is the second witness: where it disagrees, the worse of the
two counts and both are shown. An end in a time in which the controller could not be asked is as the runner dates it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from services.watcher.domain import Finding
from services.watcher.slurm.blindness import Blind
from services.watcher.slurm.sighting import Segment, Sighting, Witness, is_ended, is_over
from services.watcher.slurm.states import Means
from services.watcher.slurm.waiting import told, waiting
from shared.lifecycle.reasons import EndReason

OOM_SIGNAL: Final = 125
"""`0:125`: how Slurm writes that the kernel killed it for its memory."""
_NO_OUTPUT_FILE: Final = 53
"""`0:53`: the file for its output could not be opened, so nothing was started."""
_SETTLES: Final = timedelta(seconds=30)
"""A controller that is back needs so long to hear from its nodes what has ended meanwhile."""
_ROUNDING: Final = timedelta(seconds=2)
_RUNNER_NEVER_RAN: Final = 75
NEVER_STARTED: Final[Mapping[str, EndReason]] = MappingProxyType(
    {
        "command_not_found": EndReason.COMMAND_NOT_FOUND,
        "cannot_execute": EndReason.COMMAND_NOT_EXECUTABLE,
        "working_directory_missing": EndReason.CONFIGURATION,
        "working_directory_unreachable": EndReason.CONFIGURATION,
        "environment_missing": EndReason.CONFIGURATION,
        "supervisor_failed": EndReason.CONFIGURATION,
    }
)
"""The runner's words for a command that it could not start. Those for one that it was not to start are no end."""
_SHELLS_SIGNAL: Final = 128
"""A shell exits with this and the number of the signal that ended its command."""


def findings(sighting: Sighting, blind: Sequence[Blind] = ()) -> tuple[Finding, ...]:
    """What is to be told of a submission: ends of earlier segments, and where the last one is."""
    *earlier, last = sighting.segments
    return (*(_requeued(sighting, segment) for segment in earlier), *_of_last(sighting, last, blind))


def _of_last(sighting: Sighting, last: Segment, blind: Sequence[Blind]) -> Iterator[Finding]:
    if last.state is None or last.state.means is Means.ELSEWHERE:
        return
    if is_over(last):
        if (end := _exited(sighting, last, blind)) is not None:
            yield _finding(sighting, last, "exited", end)
        return
    if not last.controller:
        return  # accounting says that it waits or runs, the controller does not have it: one of them is behind
    if last.state.means in (Means.WAITS, Means.HELD):
        yield _finding(sighting, last, "seen_pending", {"raw_state": last.word, "raw_reason": told(last.reason)})
    elif last.start is not None:
        since = None if last.suspended_since is None else last.suspended_since.isoformat()
        running = {"started_at": last.start.isoformat(), "raw_state": last.word, "suspended_since": since}
        yield _finding(sighting, last, "seen_running", {**running, "suspended_ms": last.suspended_ms})


def _requeued(sighting: Sighting, segment: Segment) -> Finding:
    end = segment.end or segment.created_at
    fields = {
        "started_at": None if segment.start is None else segment.start.isoformat(),
        "ended_at": end.isoformat(),
        "suspended_ms": segment.suspended_ms,
        "raw_reason": segment.word,
        "estimated": segment.end is None or segment.end_is_requeue,
    }
    return _finding(sighting, segment, "segment_requeued", fields)


def _exited(sighting: Sighting, segment: Segment, blind: Sequence[Blind]) -> Mapping[str, Any] | None:
    """The fields of an end; None where the runner says that it never started the command, as it was not to."""
    witness = sighting.witness(segment.restart)
    code, signal, reason = _outcome(segment, witness)
    if code == _RUNNER_NEVER_RAN and (witness is None or not witness.ran):
        return None
    ended_at, remark = _end(segment, witness, blind)
    remarks = [text for text in (_who(segment), _disagreement(segment, witness), remark) if text]
    return {
        "code": code,
        "signal": signal,
        "started_at": None if segment.start is None else segment.start.isoformat(),
        "ended_at": ended_at.isoformat(),
        "suspended_ms": segment.suspended_ms,
        "stop_recorded": _stopped(segment, witness),
        "reason": None if reason is None else reason.value,
        "message": "; ".join(remarks) or None,
        "raw_state": segment.word,
        "self_reported": False,
        "estimated": False,
    }


def _outcome(segment: Segment, witness: Witness | None) -> tuple[int | None, int | None, EndReason | None]:
    """(code, signal, reason). A COMPLETED without a readable `0:0`, and a FAILED without a code, are no success."""
    assert segment.state is not None
    slurm = segment.exit
    if witness is not None and not witness.ran and segment.state.reason is None:
        word = NEVER_STARTED.get(witness.reason or "")
        return witness.code, witness.signal, word
    if slurm is not None and slurm.signal == OOM_SIGNAL:
        return None, None, EndReason.OUT_OF_MEMORY
    if segment.state.reason is not None:
        return None, None, segment.state.reason
    if slurm is not None and slurm.signal == _NO_OUTPUT_FILE and witness is None:
        return None, None, EndReason.CONFIGURATION
    failed = segment.word.split()[0].upper() != "COMPLETED"
    if slurm is None or (failed and slurm.code == 0 and slurm.signal == 0):
        if witness is None or (failed and witness.code == 0):
            return None, None, None
        return witness.code, witness.signal, None
    if witness is not None and _lost_its_high_bit(segment, witness):
        return witness.code, None, None
    code, signal = (None, slurm.signal) if slurm.signal else (slurm.code, None)
    if code == 0 and witness is not None and witness.code != 0:
        return witness.code, witness.signal, None
    return code, signal, None


def _lost_its_high_bit(segment: Segment, witness: Witness) -> bool:
    """Accounting keeps exit 137 as 9:0, the controller as it is."""
    slurm = segment.exit
    if segment.controller or slurm is None or slurm.signal or not slurm.code:
        return False
    return witness.code == _SHELLS_SIGNAL + slurm.code


def _stopped(segment: Segment, witness: Witness | None) -> bool | None:
    """Whether the cluster's side recorded a stop before the end; without the runner's record nobody can tell."""
    assert segment.state is not None
    if segment.state.reason is EndReason.STOPPED_AT_BACKEND:
        return True
    return None if witness is None else witness.stop_seen_at is not None


def _end(segment: Segment, witness: Witness | None, blind: Sequence[Blind]) -> tuple[datetime, str | None]:
    """When it ended. The runner's time counts only where the controller was away then, and dates the end to its return:
    it must lie in that time, for the job's user could have written it."""
    ended_at = segment.end or segment.created_at
    if witness is None or ended_at - witness.ended_at <= _ROUNDING:
        return ended_at, None
    unseen = any(
        gap.since - _SETTLES <= witness.ended_at and gap.since <= ended_at <= gap.until + _SETTLES for gap in blind
    )
    if not unseen or (segment.start is not None and witness.ended_at < segment.start):
        return ended_at, None
    late = round((ended_at - witness.ended_at).total_seconds())
    return witness.ended_at, f"Slurm recorded the end {late} s late, after a time in which it could not be asked"


def is_stuck(sighting: Sighting) -> bool:
    """Whether it waits for what will never come."""
    last = sighting.last
    if last.state is None or not last.controller:
        return False
    return last.state.means is Means.HELD or (last.state.means is Means.WAITS and waiting(last.reason).stuck)


def given_up(sighting: Sighting, at: datetime) -> tuple[Finding, ...]:
    """What is told of one that is stuck: its end. It stays the end when the job is cancelled for it (see `store`)."""
    *earlier, last = sighting.segments
    fields = {
        "given_up": True,
        "ended_at": at.replace(microsecond=0).isoformat(),
        "stop_recorded": False,
        "reason": EndReason.CONFIGURATION.value,
        "message": f"it can never start: {told(last.reason)}",
        "raw_state": last.word,
    }
    return (*(_requeued(sighting, segment) for segment in earlier), _finding(sighting, last, "exited", fields))


def self_reported(sighting: Sighting, witness: Witness) -> Finding | None:
    """The runner's record of an end that neither the controller nor accounting shows: the only witness is the job's own
    account, and that is said."""
    if not witness.ran and witness.reason not in NEVER_STARTED:
        return None
    reason = None if witness.ran else NEVER_STARTED[witness.reason or ""]
    fields = {
        "code": witness.code,
        "signal": witness.signal,
        "started_at": None if witness.started_at is None else witness.started_at.isoformat(),
        "ended_at": witness.ended_at.isoformat(),
        "stop_recorded": witness.stop_seen_at is not None,
        "reason": None if reason is None else reason.value,
        "message": "Slurm knows it no more: only the runner's own record says how it ended",
        "raw_state": "GONE",
        "self_reported": True,
    }
    return _finding(sighting, sighting.last, "exited", fields)


def _who(segment: Segment) -> str | None:
    if segment.state is None or segment.state.reason is not EndReason.STOPPED_AT_BACKEND:
        return None
    return "cancelled" if segment.cancelled_by is None else f"cancelled by uid {segment.cancelled_by}"


def _disagreement(segment: Segment, witness: Witness | None) -> str | None:
    if witness is None or segment.exit is None or not is_ended(segment.state):
        return None
    slurm = segment.exit
    if slurm.signal:
        same = witness.signal == slurm.signal or witness.code == _SHELLS_SIGNAL + slurm.signal
    else:
        same = witness.code == slurm.code or _lost_its_high_bit(segment, witness)
    if same or segment.state is None or segment.state.reason is not None:
        return None
    said = f"exit {witness.code}" if witness.code is not None else f"signal {witness.signal}"
    return f"Slurm says {segment.word} {slurm.code}:{slurm.signal}, the runner recorded {said}"


def _finding(sighting: Sighting, segment: Segment, kind: str, fields: Mapping[str, Any]) -> Finding:
    key = {
        "submission": sighting.name,
        "restart": segment.restart,
        "created_at": segment.created_at.isoformat(),
    }
    # What was told is remembered by this name: of each segment its own.
    name = sighting.name if segment.restart == 0 else f"{sighting.name}+{segment.restart}"
    return Finding(name, kind, sighting.job, sighting.attempt, {"tenant": sighting.tenant, "segment": key, **fields})
