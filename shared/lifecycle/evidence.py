"""The steps of `advance` that facts take: merging, adoption, admission, gates, and the end of a recopy."""

from datetime import datetime

from shared.lifecycle import facts as f
from shared.lifecycle.derive import ADOPTED, derive
from shared.lifecycle.finish import settle, skip_to
from shared.lifecycle.folding import fold_segments
from shared.lifecycle.outcome import StepResult, applied, ignored, refused
from shared.lifecycle.picture import is_folded, merge, picture, segment_of
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import Attempt, Copied, JobRecord
from shared.lifecycle.stages import after_recopy
from shared.lifecycle.states import State
from shared.lifecycle.usage import segments
from shared.lifecycle.verdict import sentence


def merge_evidence(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Merge a fact of the current attempt; write the verdict when that seals it."""
    attempt = _merged(record.current, fact)
    if isinstance(attempt, str):
        return ignored(record, attempt)
    record = settle(_with_current(record, attempt), now)
    return applied(_with_current(record, fold_segments(record.current)))


def adopt(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Admit an attempt that is already in other services' hands, then merge. It was let through, so nothing holds it
    and the steps before it are done."""
    admitted = record.current.model_copy(update={"admission": ADOPTED, "admitted_at": fact.at})
    through = _let_through(record, admitted).model_copy(update={"hold": None})
    if through.pipeline is not None:
        done = through.pipeline.model_copy(update={"upstream_done": True})
        through = through.model_copy(update={"pipeline": done})
    return merge_evidence(through, fact, now)


def adopt_newer(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Take up an attempt that others have seen and that this record, taken back by a restore, does not know."""
    return adopt(skip_to(record, fact.attempt, fact.at), fact, now)


def evidence_only(record: JobRecord, fact: f.AnyFact, now: datetime) -> StepResult:
    """Merge into the attempt that the fact names: its segments may change, state and end reason never."""
    index = next((i for i, known in enumerate(record.attempts) if known.number == fact.attempt), None)
    if index is None:
        return ignored(record, f"attempt {fact.attempt} is no longer kept in the record")
    attempt = _merged(record.attempts[index], fact)
    if isinstance(attempt, str):
        return ignored(record, attempt)
    seen = picture(attempt)
    attempt = attempt.model_copy(update={"segments": segments(attempt, seen, record.resources.gpus)})
    attempts = (*record.attempts[:index], fold_segments(attempt), *record.attempts[index + 1 :])
    update: dict[str, object] = {"attempts": attempts}
    if attempt.number == record.attempt:
        update["gpus_freed"] = seen.gpus_freed is not None
    return applied(record.model_copy(update=update))


def _merged(attempt: Attempt, fact: f.AnyFact) -> Attempt | str:
    """The attempt with the fact in it, or the reason why that changes nothing."""
    if attempt.folded is not None and attempt.folded.until is None:
        return f"attempt {attempt.number} is closed and counted"
    key = segment_of(fact)
    if key is not None and is_folded(attempt, key):
        return "that segment is closed and counted"
    evidence = merge(attempt.evidence, fact)
    if evidence is None:
        return "an equal or newer version is known"
    return attempt.model_copy(update={"evidence": evidence})


def admit(record: JobRecord, fact: f.Admitted, now: datetime) -> StepResult:
    """QUEUED to SUBMITTED, unless a hold or an unfinished step before it came first: then the refusal is carried by
    the next event, the gatekeeper ends that reservation, and the same admission told again stays refused."""
    why = None
    if record.admission_refused is not None and fact.admission <= record.admission_refused:
        return refused(record, f"admission {fact.admission} was refused already")
    if record.hold is not None:
        why = f"{record.hold.actor} holds it"
    elif record.pipeline is not None and not record.pipeline.upstream_done:
        why = "the steps before it have not succeeded"
    if why is not None:
        return refused(record.model_copy(update={"admission_refused": fact.admission}), why)
    admitted = record.current.model_copy(
        update={"admission": fact.admission, "admitted_at": fact.at, "cluster": fact.cluster}
    )
    return applied(derive(_let_through(record, admitted)))


def _let_through(record: JobRecord, attempt: Attempt) -> JobRecord:
    return record.model_copy(
        update={
            "state": State.SUBMITTED,
            "gate": None,
            "closed_gates": (),
            "gate_version": None,
            "admission_refused": None,
            "message": None,
            "attempts": (*record.attempts[:-1], attempt),
        }
    )


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
    if fact.outcome != "verified":
        said = sentence(EndReason.COPY_BACK_FAILED, record.exit, fact.message)
        return applied(record.model_copy(update={"recopy": None, "message": said}))
    done = sentence(EndReason.SUCCEEDED, record.exit, "its outputs were copied again")
    copied = Copied(files=fact.files, size_bytes=fact.size_bytes, manifest=fact.manifest)
    stages = after_recopy(record.stages, now)
    told = {"outputs": copied, "end_reason": EndReason.SUCCEEDED, "message": done, "stages": stages}
    attempt = record.current.model_copy(update=told)
    return applied(
        record.model_copy(
            update={
                "recopy": None,
                "attempts": (*record.attempts[:-1], attempt),
                "state": State.SUCCEEDED,
                "stages": stages,
                "corrects": State.FAILED,
                "end_reason": EndReason.SUCCEEDED,
                "failed_stage": None,
                "message": done,
                "hint": None,
                "finished_at": now,
            }
        )
    )


def _with_current(record: JobRecord, attempt: Attempt) -> JobRecord:
    if attempt is record.current:
        return record
    return record.model_copy(update={"attempts": (*record.attempts[:-1], attempt)})
