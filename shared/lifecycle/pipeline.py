"""A pipeline: its one word, what a command for it asks of its steps, and what the end of a step means for those after
it. Pure functions of its steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from shared.lifecycle.advance import advance
from shared.lifecycle.inputs import Delete, Pause, Resume, Retry, Stop, UpstreamDone, UpstreamFailed
from shared.lifecycle.outcome import APPLIED, Outcome
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, TERMINAL, Desired, State


class PipelineWord(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    QUEUED = "queued"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    STOPPED = "stopped"
    FAILED = "failed"


PipelineCommand = Stop | Pause | Resume | Retry | Delete

ENDED: Final[Mapping[PipelineWord, str]] = MappingProxyType(
    {
        PipelineWord.SUCCEEDED: "it succeeded already",
        PipelineWord.PARTIAL: "it has ended already: a step did not succeed",
        PipelineWord.FAILED: "it failed already",
        PipelineWord.STOPPED: "it is stopped already",
    }
)
"""What is said of a pipeline at its end to whoever asks for more; while it moves, nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command for a pipeline asks of its steps, in their order, and its outcome as that of a job: with another
    one than `applied` nothing is asked."""

    outcome: Outcome
    steps: tuple[tuple[JobRecord, PipelineCommand], ...] = ()


def pipeline_word(steps: Sequence[tuple[State, EndReason | None]]) -> PipelineWord:
    """The word for steps in order, each with its state and end reason.

    While moving, the first that applies: running, paused, queued. At the end: succeeded; partial when the first step
    succeeded and a later one did not; stopped by a person; failed. A pipeline without steps is refused (ValueError).
    """
    if not steps:
        raise ValueError("a pipeline needs at least one step")
    states = [state for state, _ in steps]
    if any(state not in TERMINAL for state in states):
        if any(state in ACTIVE for state in states):
            return PipelineWord.RUNNING
        return PipelineWord.PAUSED if State.PAUSED in states else PipelineWord.QUEUED
    if all(state is State.SUCCEEDED for state in states):
        return PipelineWord.SUCCEEDED
    if states[0] is State.SUCCEEDED:
        return PipelineWord.PARTIAL
    return PipelineWord.FAILED if State.FAILED in states else PipelineWord.STOPPED


def word_of(steps: Sequence[JobRecord]) -> PipelineWord:
    """The word for the records of all steps, in order."""
    return pipeline_word([(step.state, step.end_reason) for step in steps])


def ask_pipeline(steps: Sequence[JobRecord], command: PipelineCommand, now: datetime) -> Asked:
    """What `command` means for the steps, given in order with every one that was not deleted.

    Stop and pause go to whatever has not ended, so that the end of a running step starts nothing. Resume goes to all
    paused steps once none is pausing any more, retry to all that did not succeed once none moves any more, delete to
    all of them then, the last one first: either all of them can, or none is asked. The caller applies what is asked,
    then `follow_ups`, in one transaction: a step that is retried waits for those before it, and one whose earlier steps
    have all succeeded does not.
    """
    word = word_of(steps)
    match command:
        case Stop() | Pause():
            if word in ENDED:
                return _refused(ENDED[word])
            return _whoever_can([step for step in steps if step.state not in TERMINAL], command, now)
        case Resume():
            if word in ENDED:
                return _refused(f"{ENDED[word]}: only a paused pipeline can be resumed")
            if any(step.state in ACTIVE and step.desired_state is Desired.PAUSED for step in steps):
                return _refused("it is still pausing: resume it once it is paused")
            paused = [step for step in steps if step.state is State.PAUSED]
            return _all_or_none(paused, command, now) if paused else _refused(f"it is not paused: it is {word}")
        case Retry():
            if word is PipelineWord.SUCCEEDED:
                return _refused(f"{ENDED[word]}: submit it again to run it again")
            if word not in ENDED:
                way = ": resume it instead" if word is PipelineWord.PAUSED else f": it is {word}"
                return _refused(f"it has not ended{way}")
            again = [step for step in steps if step.state is not State.SUCCEEDED]
            return _all_or_none(again, command.model_copy(update={"with_pipeline": True}), now)
        case Delete():
            if word not in ENDED:
                return _refused("it has not ended: stop it first")
            return _all_or_none(steps[::-1], command, now)
        case _:
            assert_never(command)


def _refused(why: str) -> Asked:
    return Asked(Outcome("refused", why))


def _whoever_can(steps: Sequence[JobRecord], command: PipelineCommand, now: datetime) -> Asked:
    """It is asked of every step that it changes. Where it changes none, all say why: refused goes before ignored."""
    outcomes = [advance(step, [command], now).outcomes[0] for step in steps]
    asked = tuple((step, command) for step, outcome in zip(steps, outcomes, strict=True) if outcome.what == "applied")
    if asked:
        return Asked(APPLIED, asked)
    return Asked(next((outcome for outcome in outcomes if outcome.what == "refused"), outcomes[0]))


def _all_or_none(steps: Sequence[JobRecord], command: PipelineCommand, now: datetime) -> Asked:
    """It is asked of every step; the first one that cannot is named."""
    for step in steps:
        assert step.pipeline is not None, "a step knows its pipeline"
        outcome = advance(step, [command], now).outcomes[0]
        if outcome.what != "applied":
            return _refused(f"step {step.pipeline.step}: {outcome.why}")
    return Asked(APPLIED, tuple((step, command) for step in steps))


def follow_ups(steps: Sequence[JobRecord], at: datetime) -> Iterator[tuple[JobRecord, UpstreamDone | UpstreamFailed]]:
    """What the pipeline decides about steps that still wait for earlier ones, whenever a step came to an end or left
    one: the first step that did not succeed ends all of them, naming it; where every earlier one succeeded, the gate
    opens. Nothing is decided a second time."""
    failed: str | None = None
    all_succeeded = True
    for step in steps:
        assert step.pipeline is not None, "a step knows its pipeline"
        actor = f"pipeline {step.pipeline.id}"
        if step.state in (State.QUEUED, State.PAUSED) and not step.pipeline.upstream_done:
            if failed is not None:
                yield step, UpstreamFailed(actor=actor, at=at, step=failed)
            elif all_succeeded:
                yield step, UpstreamDone(actor=actor, at=at)
        if step.state is State.SUCCEEDED:
            continue
        all_succeeded = False
        if step.state in TERMINAL and failed is None:
            failed = step.pipeline.step
