"""What a pipeline decides about waiting steps, over every combination of their states."""

from itertools import product

from shared.lifecycle.advance import advance
from shared.lifecycle.inputs import UpstreamDone, UpstreamFailed
from shared.lifecycle.pipeline import follow_ups
from shared.lifecycle.record import JobRecord, PipelineRef
from shared.lifecycle.states import TERMINAL, State
from tests.unit.lifecycle.jobs import START, a_job

BAD = TERMINAL - {State.SUCCEEDED}
WAITING = (State.QUEUED, State.PAUSED)


def _steps(states: tuple[State, ...], let_through: int) -> list[JobRecord]:
    """Steps in these states; the first `let_through` wait for nobody any more."""
    made = a_job().record
    return [
        made.model_copy(
            update={
                "id": f"{made.id[:-1]}{index}",
                "state": state,
                "pipeline": PipelineRef(id="p1", step=f"s{index}", index=index, upstream_done=index < let_through),
            }
        )
        for index, state in enumerate(states)
    ]


def test_a_step_is_let_through_once_all_before_it_succeeded_and_ended_once_one_did_not() -> None:
    for states in product(State, repeat=3):
        for let_through in (1, 2):
            steps = _steps(states, let_through)
            decided = {step.id: command for step, command in follow_ups(steps, START)}
            for index, step in enumerate(steps):
                before = states[:index]
                command = decided.get(step.id)
                if step.state not in WAITING or index < let_through:
                    assert command is None
                elif BAD.intersection(before):
                    first = next(i for i, state in enumerate(before) if state in BAD)
                    assert isinstance(command, UpstreamFailed)
                    assert command.step == f"s{first}"
                elif set(before) == {State.SUCCEEDED}:
                    assert isinstance(command, UpstreamDone)
                else:
                    assert command is None


def test_what_was_decided_is_decided_once() -> None:
    for states in product((State.SUCCEEDED, State.FAILED, State.QUEUED, State.PAUSED), repeat=4):
        steps = {step.id: step for step in _steps(states, 1)}
        for step, command in list(follow_ups(list(steps.values()), START)):
            done = advance(step, [command], START)
            assert done.outcomes[0].what == "applied"
            steps[step.id] = done.record
        assert list(follow_ups(list(steps.values()), START)) == []
