"""A pipeline: its one word, and what the end of a step means for those after it. Pure functions of its steps."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from shared.lifecycle.inputs import UpstreamDone, UpstreamFailed
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, TERMINAL, State


class PipelineWord(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    QUEUED = "queued"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    STOPPED = "stopped"
    FAILED = "failed"


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


def follow_ups(steps: Sequence[JobRecord], at: datetime) -> Iterator[tuple[JobRecord, UpstreamDone | UpstreamFailed]]:
    """What the pipeline decides about steps that still wait for earlier ones: the first step that did not succeed ends
    all of them, naming it; where every earlier one succeeded, the gate opens. Nothing is decided a second time."""
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
