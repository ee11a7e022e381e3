"""Rule 9: a pipeline is one word, by a pure function of its steps' outcomes."""

import pytest

from shared.lifecycle.pipeline import pipeline_word
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import State

OK = (State.SUCCEEDED, EndReason.SUCCEEDED)
FAILED = (State.FAILED, EndReason.EXIT_NONZERO)
STOPPED = (State.STOPPED, EndReason.STOPPED_BY_USER)
SKIPPED = (State.STOPPED, EndReason.UPSTREAM_FAILED)
QUEUED, PAUSED, RUNNING, PENDING, SUBMITTED = (
    (state, None) for state in (State.QUEUED, State.PAUSED, State.RUNNING, State.PENDING, State.SUBMITTED)
)

TABLE = {
    "one step runs": ([OK, RUNNING, QUEUED], "running"),
    "one step is being started": ([OK, SUBMITTED], "running"),
    "one step waits at the backend": ([PENDING], "running"),
    "one is paused and one runs": ([PAUSED, RUNNING], "running"),
    "one is paused and one waits": ([PAUSED, QUEUED], "paused"),
    "all wait": ([QUEUED, QUEUED], "queued"),
    "the first is done and the next waits": ([OK, QUEUED], "queued"),
    "a step failed and another still runs": ([FAILED, RUNNING], "running"),
    "all succeeded": ([OK, OK, OK], "succeeded"),
    "A ok, B failed, C skipped": ([OK, FAILED, SKIPPED], "partial"),
    "A ok, B stopped by a person": ([OK, STOPPED], "partial"),
    "A failed, the rest skipped": ([FAILED, SKIPPED, SKIPPED], "failed"),
    "A failed, a clean-up step succeeded": ([FAILED, OK], "failed"),
    "A failed, B stopped by a person": ([FAILED, STOPPED], "failed"),
    "A stopped by a person, B skipped": ([STOPPED, SKIPPED], "stopped"),
    "all skipped": ([SKIPPED, SKIPPED], "stopped"),
}


@pytest.mark.parametrize(("steps", "word"), [pytest.param(*case, id=name) for name, case in TABLE.items()])
def test_a_pipeline_is_one_word(steps: list[tuple[State, EndReason | None]], word: str) -> None:
    assert pipeline_word(steps) == word


def test_a_pipeline_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        pipeline_word([])
