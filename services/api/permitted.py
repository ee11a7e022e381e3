"""What decides about a command beside the job's own record: whether its snapshot is stored, how its pipeline stands.
Pure: the same answer for what is shown and for what is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.api.domain import Change, take_command
from shared.lifecycle.actions import ACTIONS, Action, command_of
from shared.lifecycle.inputs import AnyCommand
from shared.lifecycle.outcome import Outcome
from shared.lifecycle.pipeline import Asked, PipelineCommand, ask_pipeline
from shared.lifecycle.record import JobRecord

STARTS_AGAIN: Final = frozenset({"resume", "retry"})
"""Commands after which the working directory is needed once more."""
PIPELINE_ACTIONS: Final = ("stop", "pause", "resume", "retry", "delete")
NOT_OFFERED: Final[Mapping[str, str]] = {"recopy": "copying outputs again is not offered by this version"}


@dataclass(frozen=True, slots=True)
class Around:
    """What is true around a job: the snapshot that its spec names, whether a step of its pipeline has not ended, the
    last step after it that did not succeed, and the steps which were deleted, as (index, name)."""

    snapshot: str | None = None
    is_stored: bool = True
    pipeline_moves: bool = False
    needed_by: str | None = None
    deleted_steps: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Around":
        """From the columns of `reads.AROUND`."""
        gone = tuple((step["index"], step["name"]) for step in row["gone"] or ())
        return cls(row["snapshot"], row["stored"], row["moves"], row["needed_by"], gone)


NOTHING_AROUND: Final = Around()


def decide(record: JobRecord, command: AnyCommand, around: Around, now: datetime) -> tuple[Change | None, Outcome]:
    """What becomes of a person's wish: `take_command`, unless what is around the job forbids it."""
    change, outcome = take_command(record, command, now)
    why_not = None if change is None else _why_not(record, command.kind, around)
    return (change, outcome) if why_not is None else (None, Outcome("refused", why_not))


def job_actions(record: JobRecord, around: Around, now: datetime, *, is_admin: bool) -> dict[str, Action]:
    """Every action with whether it is possible now, and if not, the sentence why: the one that the call would give."""
    answers: dict[str, Action] = {}
    for name in ACTIONS:
        if name in NOT_OFFERED:
            answers[name] = Action(allowed=False, why_not=NOT_OFFERED[name])
            continue
        outcome = decide(record, command_of(name, "somebody", now, by_admin=is_admin), around, now)[1]
        answers[name] = Action(allowed=outcome.what == "applied", why_not=outcome.why)
    return answers


def decide_steps(
    steps: Sequence[JobRecord], command: PipelineCommand, around: Mapping[str, Around], now: datetime
) -> Asked:
    """What a command for a pipeline asks of its steps, given in order without those that were deleted: `ask_pipeline`,
    unless what is around them forbids it."""
    asked = ask_pipeline(steps, command, now)
    why_not = _why_not_steps(asked, around)
    return asked if why_not is None else Asked(Outcome("refused", why_not))


def pipeline_actions(
    steps: Sequence[JobRecord], around: Mapping[str, Around], now: datetime, *, is_admin: bool
) -> dict[str, Action]:
    """The same as `job_actions` for a pipeline as one."""
    answers: dict[str, Action] = {}
    for name in PIPELINE_ACTIONS:
        command = command_of(name, "somebody", now, by_admin=is_admin)
        assert isinstance(command, PipelineCommand), "these are the commands for a pipeline"
        outcome = decide_steps(steps, command, around, now).outcome
        answers[name] = Action(allowed=outcome.what == "applied", why_not=outcome.why)
    return answers


def _why_not_steps(asked: Asked, around: Mapping[str, Around]) -> str | None:
    for step, command in asked.steps:
        if command.kind == "retry" and around[step.id].deleted_steps:
            name = min(around[step.id].deleted_steps)[1]
            return f"step {name} was deleted: submit the pipeline again"
        # A step is kept for those after it, and all of them go.
        why_not = None if command.kind == "delete" else _why_not(step, command.kind, around[step.id])
        if why_not is not None and step.pipeline is not None:
            return f"step {step.pipeline.step}: {why_not}"
    return None


def _why_not(record: JobRecord, kind: str, around: Around) -> str | None:
    if kind in STARTS_AGAIN:
        return snapshot_gone(around) or _outputs_gone(record, around.deleted_steps)
    if kind == "delete" and record.pipeline is not None and around.pipeline_moves:
        return (
            f"its pipeline {record.pipeline.id} has not ended, and a step may need what this one left: "
            "wait for its end, or stop it"
        )
    if kind == "delete" and around.needed_by is not None:
        return (
            f"step {around.needed_by} did not succeed, and could not be retried without this one: "
            "delete the steps that did not succeed first, from the last on"
        )
    return None


def snapshot_gone(around: Around) -> str | None:
    """The sentence about a working directory that is not stored any more."""
    return None if around.is_stored else f"its snapshot {around.snapshot} is gone: submit it again"


def _outputs_gone(record: JobRecord, deleted: Sequence[tuple[int, str]]) -> str | None:
    if record.pipeline is None:
        return None
    before = sorted(step for step in deleted if step[0] < record.pipeline.index)
    return f"step {before[0][1]} was deleted, and its outputs with it: submit the pipeline again" if before else None
