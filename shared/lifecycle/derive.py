"""What a record shows between decisions, derived from its evidence: state, phase, stages, segments, warnings."""

from datetime import datetime
from typing import Final

from shared.lifecycle import facts as f
from shared.lifecycle.picture import Picture, picture
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import Attempt, Backend, JobRecord, Retries, Workstation
from shared.lifecycle.stages import open_stages
from shared.lifecycle.states import ACTIVE, Desired, Phase, State
from shared.lifecycle.usage import segments
from shared.lifecycle.verdict import exit_reason

ADOPTED: Final = 0
"""The admission number of an attempt that was found running and never admitted: booked even over quota."""

GONE: Final = "gone"
"""Shown as the backend's state once the watcher said `lost`: what it said before is no longer so."""


def derive(record: JobRecord) -> JobRecord:
    """The record as the current attempt's evidence has it."""
    return derived(record, picture(record.current))


def derived(record: JobRecord, seen: Picture) -> JobRecord:
    """The same for an attempt whose evidence was read already."""
    attempt = record.current
    update: dict[str, object] = {"segments": segments(attempt, seen, record.resources.gpus)}
    if attempt.admission == ADOPTED and attempt.evidence:
        admitted_at = min(fact.at for fact in attempt.evidence)
        update |= {"admitted_at": admitted_at, "queued_at": min(attempt.queued_at, admitted_at)}
    attempt = attempt.model_copy(update=update)
    state = _state(seen) if record.state in ACTIVE else record.state
    return record.model_copy(
        update={
            "state": state,
            "phase": _phase(record, state, seen),
            "attempts": (*record.attempts[:-1], attempt),
            "retries": _retries(record.retries, attempt, seen),
            "backend": _backend(attempt, seen),
            "workstation": _workstation(record, state, seen),
            "warnings": _warnings(record, seen),
            "findings": () if seen.input_invalid is None else seen.input_invalid.findings,
            "gpus_freed": seen.gpus_freed is not None,
            "started_at": _started_at(attempt),
            "command_ended_at": None if seen.exited is None else seen.exited.ended_at,
            "stages": open_stages(record, attempt, seen),
        }
    )


def _state(seen: Picture) -> State:
    if seen.exited is not None and seen.reached_running:
        return State.RUNNING
    if seen.requeued is not None:
        return State.PENDING
    if seen.running is not None:
        return State.RUNNING
    return State.SUBMITTED if seen.latest is None and seen.accepted is None else State.PENDING


def _phase(record: JobRecord, state: State, seen: Picture) -> Phase | None:
    running = seen.running if seen.requeued is None and seen.exited is None else None
    if state is State.RUNNING and running is not None and running.suspended_since is not None:
        return Phase.SUSPENDED_BY_BACKEND
    if record.kind != "workstation":
        return None
    if state is State.PAUSED:
        return Phase.SUSPENDED
    if state in ACTIVE and record.desired_state is Desired.PAUSED:
        return Phase.SUSPENDING
    return Phase.ACTIVE if state is State.RUNNING else None


def _workstation(record: JobRecord, state: State, seen: Picture) -> Workstation | None:
    """Idle is what runs and is to run on; whoever put the suspension off sees the later instant."""
    known = record.workstation
    if known is None:
        return None
    idle = seen.idle if state is State.RUNNING and seen.exited is None and record.desired_state is Desired.RUN else None
    suspends_at = None if idle is None else idle.suspends_at
    if suspends_at is not None and known.snoozed_until is not None:
        suspends_at = max(suspends_at, known.snoozed_until)
    since = None if idle is None else idle.idle_since
    return known.model_copy(update={"idle_since": since, "suspends_at": suspends_at})


def _retries(retries: Retries, attempt: Attempt, seen: Picture) -> Retries:
    """The backend's requeues draw on the infrastructure's budget."""
    used = attempt.infrastructure_before + seen.requeues
    return retries if retries.infrastructure_used == used else retries.model_copy(update={"infrastructure_used": used})


def _backend(attempt: Attempt, seen: Picture) -> Backend:
    raw_state, raw_reason = None, None
    if seen.exited is not None:
        raw_state = seen.exited.raw_state
    elif seen.lost is not None:
        raw_state = GONE
    elif seen.requeued is not None:
        raw_reason = seen.requeued.raw_reason
    elif seen.running is not None:
        raw_state = seen.running.raw_state
    elif seen.pending is not None:
        raw_state, raw_reason = seen.pending.raw_state, seen.pending.raw_reason
    took = seen.accepted
    if took is None:
        return Backend(cluster=attempt.cluster, raw_state=raw_state, raw_reason=raw_reason)
    return Backend(name=took.backend, cluster=took.cluster, ref=took.ref, raw_state=raw_state, raw_reason=raw_reason)


def _started_at(attempt: Attempt) -> datetime | None:
    started = [segment.started_at for segment in attempt.segments if segment.started_at is not None]
    if attempt.folded is not None and attempt.folded.started_at is not None:
        started.append(attempt.folded.started_at)
    return min(started, default=None)


def _warnings(record: JobRecord, seen: Picture) -> tuple[str, ...]:
    found = list(record.submit_warnings)
    if seen.input_valid is not None:
        found += seen.input_valid.warnings
    if seen.exited is not None:
        found += _of_exit(record, seen.exited, seen.staging_sealed)
    return tuple(dict.fromkeys(found))


def _of_exit(record: JobRecord, exited: f.Exited, copied: f.StagingSealed | None) -> list[str]:
    found = []
    succeeded = exit_reason(exited) is EndReason.SUCCEEDED
    if exited.self_reported:
        found.append("how it ended is what the job's own runner reported: the backend did not confirm it")
    if succeeded and exited.message is not None:
        found.append(exited.message)
    if copied is not None and copied.outcome == "failed" and not (succeeded and record.desired_state is Desired.RUN):
        which = "its outputs" if copied.manifest is None else "some of its outputs"
        found.append(f"{which} could not be copied back: {copied.message}")
    if copied is not None and copied.outcome == "verified" and copied.message is not None:
        found.append(f"left out of its outputs: {copied.message}")
    return found
