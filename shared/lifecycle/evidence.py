"""The steps of `advance` that facts take: merging, admission, gates, and deriving a record from its evidence."""

from datetime import datetime, timedelta
from typing import Final

from shared.lifecycle import facts as f
from shared.lifecycle.outcome import StepResult, applied, ignored, refused
from shared.lifecycle.picture import Picture, merge, picture, segments
from shared.lifecycle.reasons import REASONS, EndReason, RetryClass
from shared.lifecycle.record import Attempt, Backend, Copied, Exit, JobRecord, Retries
from shared.lifecycle.stages import closed_stages, open_stages
from shared.lifecycle.states import ACTIVE, Desired, Phase, State
from shared.lifecycle.verdict import Verdict, hint, sentence, verdict

_FIRST_COOLDOWN_SECONDS: Final = 15
_LONGEST_COOLDOWN_SECONDS: Final = 600
ADOPTED: Final = 0
"""The admission number of an attempt that was found running and never admitted: booked even over quota."""


def merge_evidence(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Merge a fact of the current attempt; write the verdict when that seals it."""
    merged = merge(record.current.evidence, fact)
    if merged is None:
        return ignored(record, "an equal or newer version is known")
    return applied(settle(_with_current(record, evidence=merged), now))


def adopt(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Admit an attempt that is already in other services' hands, then merge."""
    admitted = _with_current(record, admission=ADOPTED, admitted_at=fact.at)
    return merge_evidence(admitted.model_copy(update={"state": State.SUBMITTED}), fact, now)


def evidence_only(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Merge into the attempt that the fact names: its segments may change, state and end reason never."""
    index = next((i for i, known in enumerate(record.attempts) if known.number == fact.attempt), None)
    if index is None:
        return refused(record, f"attempt {fact.attempt} is not kept in the record")
    attempt = record.attempts[index]
    merged = merge(attempt.evidence, fact)
    if merged is None:
        return ignored(record, "an equal or newer version is known")
    attempt = attempt.model_copy(update={"evidence": merged})
    seen = picture(attempt)
    attempt = attempt.model_copy(update={"segments": segments(attempt, seen, record.resources.gpus)})
    attempts = (*record.attempts[:index], attempt, *record.attempts[index + 1 :])
    update: dict[str, object] = {"attempts": attempts}
    if attempt.number == record.attempt:
        update["gpus_freed"] = seen.gpus_freed is not None
    return applied(record.model_copy(update=update))


def admit(record: JobRecord, fact: f.Admitted, now: datetime) -> StepResult:
    """QUEUED to SUBMITTED, unless a hold or an unfinished step before it came first: then the refusal is carried by
    the next event, and the gatekeeper ends that reservation."""
    why = None
    if record.hold is not None:
        why = f"{record.hold.actor} holds it"
    elif record.pipeline is not None and not record.pipeline.upstream_done:
        why = "the steps before it have not succeeded"
    if why is not None:
        return refused(record.model_copy(update={"admission_refused": fact.admission}), why)
    record = record.model_copy(
        update={"state": State.SUBMITTED, "gate": None, "closed_gates": (), "admission_refused": None, "message": None}
    )
    return applied(derive(_with_current(record, admission=fact.admission, admitted_at=fact.at)))


def hold_at_gate(record: JobRecord, fact: f.Held, now: datetime) -> StepResult:
    """Show the closed gates; an older sighting never replaces a newer one."""
    if record.gate_version is not None and not record.gate_version < fact.version:
        return ignored(record, "an equal or newer version is known")
    gates = {"gate": fact.gates[0], "closed_gates": fact.gates, "gate_version": fact.version}
    return applied(derive(record.model_copy(update=gates)))


def close_recopy(record: JobRecord, fact: f.Recopied, now: datetime) -> StepResult:
    """The end of a recopy: verified outputs make SUCCEEDED once, anything else leaves FAILED with the reason."""
    if record.recopy is None or record.recopy.number != fact.recopy:
        return ignored(record, "that recopy is not open")
    update: dict[str, object] = {"recopy": None}
    if fact.outcome == "verified":
        done = sentence(EndReason.SUCCEEDED, record.exit, "its outputs were copied again")
        update |= {
            "state": State.SUCCEEDED,
            "corrects": State.FAILED,
            "end_reason": EndReason.SUCCEEDED,
            "failed_stage": None,
            "message": done,
            "hint": None,
            "finished_at": now,
        }
        copied = Copied(files=fact.files, size_bytes=fact.size_bytes, manifest=fact.manifest)
        record = _with_current(record, outputs=copied, end_reason=EndReason.SUCCEEDED, message=done)
    else:
        update["message"] = sentence(EndReason.COPY_BACK_FAILED, record.exit, fact.message)
    return applied(record.model_copy(update=update))


def settle(record: JobRecord, now: datetime) -> JobRecord:
    """Derive the record from its evidence; where the attempt is sealed, write the verdict."""
    record = derive(record)
    seen = picture(record.current)
    if record.state in ACTIVE and seen.sealed:
        return _finish(record, seen, verdict(seen, record.desired_state, record.wish), now)
    return record


def derive(record: JobRecord) -> JobRecord:
    """State (between decisions), phase, stages, segments and backend, as the current attempt's evidence has them."""
    attempt = record.current
    seen = picture(attempt)
    attempt = attempt.model_copy(update={"segments": segments(attempt, seen, record.resources.gpus)})
    state = _state(seen) if record.state in ACTIVE else record.state
    started = [segment.started_at for segment in attempt.segments if segment.started_at is not None]
    record = record.model_copy(
        update={
            "state": state,
            "phase": _phase(record, state, seen),
            "attempts": (*record.attempts[:-1], attempt),
            "backend": _backend(seen, record.backend),
            "warnings": _warnings(record, seen),
            "findings": () if seen.input_invalid is None else seen.input_invalid.findings,
            "gpus_freed": seen.gpus_freed is not None,
            "started_at": min(started, default=None),
            "command_ended_at": None if seen.exited is None else seen.exited.ended_at,
        }
    )
    return record.model_copy(update={"stages": open_stages(record, attempt, seen)})


def _state(seen: Picture) -> State:
    if seen.exited is not None and seen.reached_running:
        return State.RUNNING
    if seen.requeued is not None:
        return State.PENDING
    if seen.running is not None:
        return State.RUNNING
    return State.SUBMITTED if seen.accepted is None and seen.pending is None and seen.exited is None else State.PENDING


def _phase(record: JobRecord, state: State, seen: Picture) -> Phase | None:
    if state is State.RUNNING and seen.exited is None and seen.running is not None and seen.running.suspended_since:
        return Phase.SUSPENDED_BY_BACKEND
    if record.kind != "workstation":
        return None
    if state is State.PAUSED:
        return Phase.SUSPENDED
    if state in ACTIVE and record.desired_state is Desired.PAUSED:
        return Phase.SUSPENDING
    return Phase.ACTIVE if state is State.RUNNING else None


def _backend(seen: Picture, before: Backend) -> Backend:
    raw = seen.exited or seen.running or seen.pending
    took = seen.accepted
    return Backend(
        name=before.name if took is None else took.backend,
        cluster=before.cluster if took is None else took.cluster,
        ref=before.ref if took is None else took.ref,
        raw_state=None if raw is None else raw.raw_state,
        raw_reason=seen.pending.raw_reason if seen.pending is not None and raw is seen.pending else None,
    )


def _warnings(record: JobRecord, seen: Picture) -> tuple[str, ...]:
    found = list(record.warnings)
    if seen.input_valid is not None:
        found += seen.input_valid.warnings
    if seen.exited is not None and seen.exited.self_reported:
        found.append("how it ended is what the job's own runner reported: the backend did not confirm it")
    copied = seen.staging_sealed
    if copied is not None and copied.outcome == "failed" and seen.exited is not None and seen.exited.code != 0:
        found.append(f"its outputs could not be copied back: {copied.message}")
    return tuple(dict.fromkeys(found))


def _finish(record: JobRecord, seen: Picture, outcome: Verdict, now: datetime) -> JobRecord:
    """Write the verdict; an automatic retry takes its place where the budgets allow one, so that FAILED means that
    nothing follows."""
    row = REASONS[outcome.reason]
    said = sentence(outcome.reason, outcome.exit, outcome.detail)
    copied = seen.staging_sealed
    outputs = None
    if copied is not None and copied.outcome == "verified":
        outputs = Copied(files=copied.files, size_bytes=copied.size_bytes, manifest=copied.manifest)
    ended = _with_current(
        record,
        sealed=True,
        end_reason=outcome.reason,
        exit=outcome.exit,
        outputs=outputs,
        message=said,
        finished_at=now,
    )
    if row.state is State.FAILED and seen.reached_running and record.desired_state is Desired.RUN:
        retries = spend(record.retries, row.retry, now)
        if retries is not None:
            return next_attempt(
                ended, now, retries=retries, message=f"attempt {record.attempt}: {said}; it is tried again"
            )
    failed = (outcome.stage or row.stage) if row.state is State.FAILED else None
    stages = closed_stages(record, record.current, seen, failed, row.state is State.SUCCEEDED, now)
    phase = Phase.SUSPENDED if row.state is State.PAUSED and record.kind == "workstation" else None
    return ended.model_copy(
        update={
            "state": row.state,
            "phase": phase,
            "stages": stages,
            "exit": outcome.exit,
            "end_reason": outcome.reason,
            "failed_stage": failed,
            "message": said,
            "hint": hint(outcome.reason, record),
            "finished_at": now,
        }
    )


def spend(retries: Retries, kind: RetryClass, now: datetime) -> Retries | None:
    """The budgets after one more automatic retry, with its cooldown; None where none is left."""
    if kind is RetryClass.USER and retries.used < retries.budget:
        cooldown = now + _cooldown(retries.used)
        return retries.model_copy(update={"used": retries.used + 1, "cooldown_until": cooldown})
    if kind is RetryClass.INFRASTRUCTURE and retries.infrastructure_used < retries.infrastructure_budget:
        cooldown = now + _cooldown(retries.infrastructure_used)
        used = retries.infrastructure_used + 1
        return retries.model_copy(update={"infrastructure_used": used, "cooldown_until": cooldown})
    return None


def _cooldown(used: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_COOLDOWN_SECONDS * 2**used, _LONGEST_COOLDOWN_SECONDS))


def next_attempt(record: JobRecord, now: datetime, *, retries: Retries, message: str | None) -> JobRecord:
    """QUEUED again as attempt n + 1 of the same run, through every gate."""
    attempt = Attempt(number=record.attempt + 1, queued_at=now, cooldown_until=retries.cooldown_until)
    return derive(
        record.model_copy(
            update={
                "state": State.QUEUED,
                "desired_state": Desired.RUN,
                "wish": None,
                "attempt": attempt.number,
                "attempts": (*record.attempts, attempt),
                "retries": retries,
                "gate": None,
                "closed_gates": (),
                "admission_refused": None,
                "exit": Exit(),
                "end_reason": None,
                "failed_stage": None,
                "hint": None,
                "message": message,
                "finished_at": None,
                "corrects": None,
                "backend": Backend(),
            }
        )
    )


def _with_current(record: JobRecord, **update: object) -> JobRecord:
    return record.model_copy(update={"attempts": (*record.attempts[:-1], record.current.model_copy(update=update))})
