"""The one word of a pipeline: a pure function of its steps' states."""

from collections.abc import Sequence
from enum import StrEnum

from shared.lifecycle.reasons import EndReason
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
