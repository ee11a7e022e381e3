"""The end of an attempt: the verdict, an automatic retry in its place, and the attempt that follows."""

from datetime import datetime, timedelta
from typing import Final

from shared.lifecycle.derive import derive, derived
from shared.lifecycle.folding import KEPT_EVIDENCE, fold_attempts
from shared.lifecycle.gates import at_own_gates
from shared.lifecycle.hints import hint
from shared.lifecycle.picture import Picture, picture
from shared.lifecycle.reasons import REASONS, RetryClass
from shared.lifecycle.record import Attempt, Backend, Copied, Exit, JobRecord, Origin, Retries, Workstation
from shared.lifecycle.stages import closed_stages
from shared.lifecycle.states import ACTIVE, Desired, Phase, State
from shared.lifecycle.usage import remaining_seconds, segments, up_ms
from shared.lifecycle.verdict import Verdict, sentence, verdict

_FIRST_COOLDOWN_SECONDS: Final = 15
_LONGEST_COOLDOWN_SECONDS: Final = 600
_NOT_KNOWN: Final = "how it ended is not known: the database was restored from a backup"


def settle(record: JobRecord, now: datetime) -> JobRecord:
    """Derive the record from its evidence; where the attempt is sealed, write the verdict."""
    seen = picture(record.current)
    record = derived(record, seen)
    if record.state in ACTIVE and seen.sealed:
        return _finish(record, seen, verdict(record, seen), now)
    return record


def _finish(record: JobRecord, seen: Picture, outcome: Verdict, now: datetime) -> JobRecord:
    """Write the verdict; an automatic retry takes its place where the budgets allow one, so that FAILED means that
    nothing follows."""
    row = REASONS[outcome.reason]
    said = sentence(outcome.reason, outcome.exit, outcome.detail)
    failed = (outcome.stage or row.stage) if row.state is State.FAILED else None
    stages = closed_stages(record, record.current, seen, failed, row.state is State.SUCCEEDED, now)
    attempt = _sealed(record, seen, outcome, said, now).model_copy(update={"stages": stages})
    ended = record.model_copy(update={"attempts": (*record.attempts[:-1], attempt)})
    if row.state is State.FAILED and seen.reached_running and record.desired_state is Desired.RUN:
        retries = spend(record.retries, row.retry, now)
        if retries is not None and remaining_seconds(ended) != 0:
            message = f"attempt {record.attempt}: {said}; it is tried again"
            return next_attempt(ended, now, origin="automatic", retries=retries, message=message)
    return ended.model_copy(
        update={
            "state": row.state,
            "phase": Phase.SUSPENDED if row.state is State.PAUSED and record.kind == "workstation" else None,
            "stages": stages,
            "exit": outcome.exit,
            "end_reason": outcome.reason,
            "failed_stage": failed,
            "message": said,
            "hint": hint(outcome.reason, ended),
            "finished_at": now,
            "retries": record.retries.model_copy(update={"cooldown_until": None}),
            "workstation": _not_idle(record.workstation),
        }
    )


def _not_idle(mark: Workstation | None) -> Workstation | None:
    """What is down is not idle, also where nobody saw how it ended."""
    return None if mark is None else mark.model_copy(update={"idle_since": None, "suspends_at": None})


def _sealed(record: JobRecord, seen: Picture, outcome: Verdict, said: str, now: datetime) -> Attempt:
    """The attempt with its verdict; what no end was seen of has ended now."""
    copied = seen.staging_sealed
    outputs = None
    if copied is not None and (copied.outcome == "verified" or copied.manifest is not None):
        outputs = Copied(files=copied.files, size_bytes=copied.size_bytes, manifest=copied.manifest)
    attempt = record.current.model_copy(
        update={
            "sealed": True,
            "end_reason": outcome.reason,
            "exit": outcome.exit,
            "outputs": outputs,
            "message": said,
            "finished_at": now,
        }
    )
    if any(segment.ended is None for segment in attempt.segments):
        return attempt.model_copy(update={"segments": segments(attempt, seen, record.resources.gpus)})
    return attempt


def spend(retries: Retries, kind: RetryClass, now: datetime) -> Retries | None:
    """The budgets after one more automatic retry, with its cooldown; None where none is left."""
    if kind is RetryClass.USER and retries.used < retries.budget:
        cooldown = now + _cooldown(retries.used)
        spent = {"used": retries.used + 1, "count": retries.count + 1}
        return retries.model_copy(update=spent | {"cooldown_until": cooldown})
    if kind is RetryClass.INFRASTRUCTURE and retries.infrastructure_used < retries.infrastructure_budget:
        cooldown = now + _cooldown(retries.infrastructure_used)
        spent = {"infrastructure_used": retries.infrastructure_used + 1, "count": retries.count + 1}
        return retries.model_copy(update=spent | {"cooldown_until": cooldown})
    return None


def _cooldown(used: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_COOLDOWN_SECONDS * 2**used, _LONGEST_COOLDOWN_SECONDS))


def next_attempt(
    record: JobRecord, now: datetime, *, origin: Origin, retries: Retries, message: str | None
) -> JobRecord:
    """QUEUED again as attempt n + 1 of the same run, through every gate. Nothing of the old attempt stays but its
    entry in `attempts`, and what is the job's own: a hold, the budgets, the count of recopies."""
    attempt = Attempt(
        number=record.attempt + 1,
        origin=origin,
        began_after=record.message if record.end_reason not in (None, record.current.end_reason) else None,
        queued_at=now,
        cooldown_until=retries.cooldown_until,
        infrastructure_before=retries.infrastructure_used,
        up_before_ms=up_ms(record.current),
    )
    return _queued(record, (*record.attempts, attempt), retries, message)


def skip_to(record: JobRecord, number: int, queued_at: datetime) -> JobRecord:
    """QUEUED as attempt `number`, which others have seen and this record has lost. It exists, so the attempts before it
    were sealed: they are here too, and open to late evidence, as far as a record keeps any."""
    retries = record.retries.model_copy(update={"cooldown_until": None})
    before = record.current
    if not before.sealed:
        before = before.model_copy(update={"sealed": True, "message": _NOT_KNOWN})
        again = segments(before, picture(before), record.resources.gpus)
        before = before.model_copy(update={"segments": again})
    missing = range(max(record.attempt + 1, number - KEPT_EVIDENCE + 1), number)
    between = (Attempt(number=one, queued_at=queued_at, sealed=True, message=_NOT_KNOWN) for one in missing)
    attempt = Attempt(
        number=number,
        queued_at=queued_at,
        infrastructure_before=retries.infrastructure_used,
        up_before_ms=up_ms(before),
    )
    known = record.model_copy(update={"recopy": None})
    return _queued(known, (*record.attempts[:-1], before, *between, attempt), retries, None)


def _queued(record: JobRecord, attempts: tuple[Attempt, ...], retries: Retries, message: str | None) -> JobRecord:
    """The record at the last of `attempts`, which the gatekeeper has not looked at yet."""
    earlier, kept = fold_attempts(record.earlier, attempts)
    queued = record.model_copy(
        update={
            "state": State.QUEUED,
            "desired_state": Desired.RUN,
            "wish": None,
            "attempt": attempts[-1].number,
            "attempts": kept,
            "earlier": earlier,
            "retries": retries,
            "gate_version": None,
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
    return derive(at_own_gates(queued, attempts[-1].queued_at))
