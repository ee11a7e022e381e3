"""`advance(record, inputs, now)`: the one function that makes the next version of a job record. Pure.

Facts merge into the evidence of their attempt; state, stages and segments are derived from it, so that the order of
evidence between two decisions does not matter. Folding the logged inputs gives the current record, always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from shared.lifecycle import commands, evidence
from shared.lifecycle.derive import derive
from shared.lifecycle.facts import FactBase
from shared.lifecycle.gates import at_own_gates
from shared.lifecycle.inputs import AnyInput, Reset
from shared.lifecycle.outcome import Outcome, StepResult, ignored, refused
from shared.lifecycle.record import (
    Attempt,
    JobRecord,
    PipelineRef,
    Resources,
    Retries,
    Signals,
    Workstation,
)
from shared.lifecycle.states import ACTIVE, Desired, State
from shared.lifecycle.table import TRANSITIONS, Row, Step

_RESTORED: Final = "the database was restored from a backup of"
_NOT_KNOWN: Final = "what was asked of this job after that, and left no trace elsewhere, is not known"


@dataclass(frozen=True, slots=True)
class Advanced:
    """The record after the inputs, the event to emit (none where nothing changed), and one outcome per input."""

    record: JobRecord
    event: str | None
    outcomes: tuple[Outcome, ...]


def create(
    *,
    id: str,
    tenant: str,
    user: str,
    name: str,
    spec_digest: str,
    resources: Resources,
    has_outputs: bool,
    now: datetime,
    epoch: int = 1,
    project: str = "default",
    kind: Literal["batch", "workstation"] = "batch",
    signals: Signals | None = None,
    workstation: Workstation | None = None,
    pipeline: PipelineRef | None = None,
    priority: int = 0,
    retries: Retries | None = None,
    warnings: tuple[str, ...] = (),
) -> JobRecord:
    """The record of a job just submitted: QUEUED, attempt 1, seq 1."""
    budgets = retries or Retries()
    record = JobRecord(
        id=id,
        tenant=tenant,
        user=user,
        name=name,
        spec_digest=spec_digest,
        resources=resources,
        has_outputs=has_outputs,
        epoch=epoch,
        project=project,
        kind=kind,
        signals=signals or Signals(),
        workstation=workstation,
        pipeline=pipeline,
        priority=priority,
        retries=budgets,
        submit_warnings=warnings,
        submitted_at=now,
        attempts=(Attempt(number=1, queued_at=now, infrastructure_before=budgets.infrastructure_used),),
    )
    return derive(at_own_gates(record, now))


def advance(record: JobRecord, inputs: Sequence[AnyInput], now: datetime) -> Advanced:
    """Apply `inputs` in order at the instant `now` (the log's time, not the evidence's).

    Raises ValueError for a naive `now`.
    """
    if now.tzinfo is None:
        raise ValueError(f"the instant {now} has no zone: give an aware one, such as datetime.now(UTC)")
    after = record
    outcomes = []
    for item in inputs:
        after, outcome = _one(after, item, now)
        outcomes.append(outcome)
    if all(outcome.what != "applied" for outcome in outcomes) and after.admission_refused == record.admission_refused:
        return Advanced(record, None, tuple(outcomes))
    after = after.model_copy(update={"seq": record.seq + 1})
    return Advanced(after, event_name(record, after), tuple(outcomes))


def reset(record: JobRecord, item: Reset) -> Advanced:
    """The same record as a new version, told again to everybody: a database or a broker's store was taken back, so that
    nobody knows what others have heard. A warning says so where the record itself may have been taken back."""
    update: dict[str, object] = {"epoch": item.epoch, "seq": record.seq + 1}
    if item.backup_at is not None:
        said = f"{_RESTORED} {item.backup_at:%Y-%m-%d %H:%M:%S} UTC: {_NOT_KNOWN}"
        given = (*(text for text in record.submit_warnings if not text.startswith(_RESTORED)), said)
        others = (text for text in record.warnings if text not in record.submit_warnings)
        update |= {"submit_warnings": given, "warnings": (*given, *others)}
    return Advanced(record.model_copy(update=update), "reset", ())


def event_name(before: JobRecord, after: JobRecord) -> str:
    """The event's token: the state entered, or what else changed."""
    if after.deleted:
        return "deleted"
    if after.state is not before.state or after.attempt != before.attempt:
        return after.state.lower()
    if after.desired_state is not before.desired_state or after.wish != before.wish:
        return "desired"
    if after.state is State.QUEUED:
        return "held" if after.attempts[:-1] == before.attempts[:-1] else "evidence"
    return "stage" if after.state in ACTIVE else "evidence"


def lookup(record: JobRecord, item: AnyInput) -> Row:
    """The table's row for an input, after the attempts' fence."""
    if record.deleted:
        return Row(Step.REFUSE, "it was deleted")
    if isinstance(item, FactBase) and item.attempt != record.attempt:
        return _fenced(record, item, item.kind)
    return TRANSITIONS[record.state, item.kind]


def _fenced(record: JobRecord, fact: FactBase, kind: str) -> Row:
    if fact.attempt > record.attempt:
        if record.state is not State.SUCCEEDED and TRANSITIONS[State.QUEUED, kind].step is Step.ADOPT:
            return Row(Step.ADOPT_NEWER)
        return Row(Step.REFUSE, f"attempt {fact.attempt} is not known: the record is at attempt {record.attempt}")
    row = TRANSITIONS[State.FAILED, kind]
    if row.step is Step.EVIDENCE:
        return row
    return Row(Step.IGNORE, f"attempt {fact.attempt} is over: the record is at attempt {record.attempt}")


def _one(record: JobRecord, item: AnyInput, now: datetime) -> StepResult:
    row = lookup(record, item)
    if row.step is Step.IGNORE:
        return ignored(record, row.why or "stale")
    if row.step is Step.REFUSE:
        pausing = record.desired_state is Desired.PAUSED and row.while_pausing
        return refused(record, pausing or row.why or "not possible now")
    return _STEPS[row.step](record, item, now)


_STEPS: Final[dict[Step, Callable[[JobRecord, Any, datetime], StepResult]]] = {
    Step.MERGE: evidence.merge_evidence,
    Step.EVIDENCE: evidence.evidence_only,
    Step.ADOPT: evidence.adopt,
    Step.ADOPT_NEWER: evidence.adopt_newer,
    Step.ADMIT: evidence.admit,
    Step.GATE: evidence.hold_at_gate,
    Step.CLOSE_RECOPY: evidence.close_recopy,
    Step.WISH: commands.wish,
    Step.STOP_NOW: commands.stop_now,
    Step.PAUSE_NOW: commands.pause_now,
    Step.PAUSE_AGAIN: commands.pause_again,
    Step.SNOOZE: commands.snooze,
    Step.RESUME: commands.resume,
    Step.RETRY: commands.retry,
    Step.HOLD: commands.hold,
    Step.RELEASE: commands.release,
    Step.OPEN_UPSTREAM: commands.open_upstream,
    Step.UNREACHABLE: commands.unreachable,
    Step.OPEN_RECOPY: commands.open_recopy,
    Step.DELETE: commands.delete,
}
"""One function per step that changes something; each takes only the inputs that the table sends to it."""
