"""Stop, pause, resume, retry and delete act on a pipeline as one: which step is asked, and why none is."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.pipeline import PipelineCommand
from shared.lifecycle.states import ACTIVE, TERMINAL, State
from tests.unit.lifecycle.line import Line

Q, P, R, OK, BAD, X = (
    State.QUEUED,
    State.PAUSED,
    State.RUNNING,
    State.SUCCEEDED,
    State.FAILED,
    State.STOPPED,
)
COMMANDS: tuple[type[PipelineCommand], ...] = (i.Stop, i.Pause, i.Resume, i.Retry)


def _in_its_second_step() -> Line:
    return Line.of(3).runs(0).succeeds(0).runs(1)


def test_a_pause_pauses_what_waits_at_once_and_asks_what_runs() -> None:
    line = _in_its_second_step().ask(i.Pause)
    assert (line.states, line.word) == ([OK, R, P], "running")
    line.obeys(1)
    assert (line.states, line.word) == ([OK, P, P], "paused")


def test_the_end_of_the_running_step_starts_nothing_while_it_pauses() -> None:
    line = _in_its_second_step().ask(i.Pause).succeeds(1)
    assert (line.states, line.word) == ([OK, OK, P], "paused")
    line.admit(2)
    assert line.states == [OK, OK, P]
    assert line.ask(i.Resume).runs(2).states == [OK, OK, R], "it waits for nobody once it goes on"


def test_a_resume_waits_for_whatever_is_pausing() -> None:
    line = _in_its_second_step().ask(i.Pause).ask(i.Resume)
    assert line.why == "it is still pausing: resume it once it is paused"
    assert line.obeys(1).ask(i.Resume).states == [OK, Q, Q]
    assert line.word == "queued"


def test_a_step_that_goes_on_still_waits_for_those_before_it() -> None:
    line = Line.of(2).ask(i.Pause).ask(i.Resume).admit(1)
    assert line.states == [Q, Q]
    assert line.runs(0).succeeds(0).runs(1).states == [OK, R]


def test_what_an_admin_paused_only_an_admin_resumes() -> None:
    line = Line.of(2).ask(i.Pause).ask(i.Pause, actor="root", by_admin=True, reason="maintenance")
    assert line.last is not None
    assert line.last.what == "applied", "an admin's pause takes the place of a user's"
    assert line.ask(i.Resume).why == "step a: an admin paused it (maintenance): only an admin can resume it"
    assert line.states == [P, P]
    assert line.ask(i.Resume, by_admin=True).states == [Q, Q]


def test_a_retry_asks_what_did_not_succeed_and_keeps_what_did() -> None:
    line = _in_its_second_step().fails(1)
    assert (line.states, line.word) == ([OK, BAD, X], "partial")
    line.ask(i.Retry)
    assert (line.states, line.word) == ([OK, Q, Q], "queued")
    assert line.admit(2).states == [OK, Q, Q], "the last step waits for the second one"
    line.runs(1).succeeds(1).runs(2).succeeds(2)
    assert (line.states, line.word) == ([OK, OK, OK], "succeeded")
    assert [job.record.attempt for job in line.jobs] == [1, 2, 2]
    assert [job.record.retries.by_hand for job in line.jobs] == [0, 1, 1]


def test_a_retry_opens_the_gate_of_a_step_that_waits_for_nobody_any_more() -> None:
    line = Line.of(2).by_itself(1, i.Stop).runs(0).succeeds(0)
    assert (line.states, line.word) == ([OK, X], "partial")
    assert line.ask(i.Retry).runs(1).states == [OK, R]


def test_a_stop_while_it_is_paused_stops_what_did_not_end() -> None:
    line = _in_its_second_step().ask(i.Pause).obeys(1).ask(i.Stop)
    assert (line.states, line.word) == ([OK, X, X], "partial")
    assert line.ask(i.Retry).states == [OK, Q, Q]


def test_a_stop_while_it_is_pausing_goes_before_the_pause() -> None:
    line = _in_its_second_step().ask(i.Pause).ask(i.Stop).obeys(1)
    assert line.states == [OK, X, X]


def test_a_retry_of_what_an_admin_paused_and_a_user_stopped_is_held() -> None:
    line = Line.of(2).ask(i.Pause, actor="root", by_admin=True, reason="maintenance").ask(i.Stop).ask(i.Retry)
    assert line.states == [Q, Q]
    assert line.admit(0).states == [Q, Q]
    assert line.jobs[0].why == "root holds it"


REFUSED: dict[str, tuple[Callable[[], Line], type[PipelineCommand], str]] = {
    "stop of what succeeded": (lambda: _succeeded(), i.Stop, "it succeeded already"),
    "pause of what is partial": (
        lambda: _in_its_second_step().fails(1),
        i.Pause,
        "it has ended already: a step did not succeed",
    ),
    "pause of what is stopped": (lambda: Line.of(2).ask(i.Stop), i.Pause, "it is stopped already"),
    "pause of what is being stopped": (lambda: Line.of(1).runs(0).ask(i.Stop), i.Pause, "it is being stopped"),
    "pause twice": (lambda: Line.of(2).ask(i.Pause), i.Pause, "it is paused already"),
    "pause while it pauses": (lambda: Line.of(1).runs(0).ask(i.Pause), i.Pause, "it is being paused already"),
    "stop twice": (lambda: Line.of(1).runs(0).ask(i.Stop), i.Stop, "it is being stopped already"),
    "resume of what waits": (lambda: Line.of(2), i.Resume, "it is not paused: it is queued"),
    "resume of what runs": (lambda: Line.of(2).runs(0), i.Resume, "it is not paused: it is running"),
    "resume of what failed": (
        lambda: Line.of(1).runs(0).fails(0),
        i.Resume,
        "it failed already: only a paused pipeline can be resumed",
    ),
    "retry of what waits": (lambda: Line.of(2), i.Retry, "it has not ended: it is queued"),
    "retry of what runs": (lambda: Line.of(2).runs(0), i.Retry, "it has not ended: it is running"),
    "retry of what is paused": (lambda: Line.of(2).ask(i.Pause), i.Retry, "it has not ended: resume it instead"),
    "retry of what succeeded": (
        lambda: _succeeded(),
        i.Retry,
        "it succeeded already: submit it again to run it again",
    ),
    "delete of what waits": (lambda: Line.of(2), i.Delete, "it has not ended: stop it first"),
    "delete of what is paused": (lambda: Line.of(2).ask(i.Pause), i.Delete, "it has not ended: stop it first"),
    "delete of what holds its GPUs": (
        lambda: _succeeded_but_for_its_gpus(),
        i.Delete,
        "step a: the cluster has not freed its GPUs yet: wait for that",
    ),
    "retry with a budget that is spent": (
        lambda: Line.of(2, by_hand=0).runs(0).fails(0),
        i.Retry,
        "step a: its budget of 0 retries by hand is spent: submit it again",
    ),
}


def _succeeded() -> Line:
    return Line.of(1).runs(0).succeeds(0)


def _succeeded_but_for_its_gpus() -> Line:
    line = Line.of(1).runs(0)
    line.jobs[0].exited(0).tell(f.LauncherSealed, ran=True)
    return line


def test_a_delete_is_of_all_steps_however_they_ended() -> None:
    line = _in_its_second_step().fails(1).ask(i.Delete)
    assert (line.states, [step.deleted for step in line.records]) == ([OK, BAD, X], [True] * 3)


@pytest.mark.parametrize(("build", "command", "why"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_what_is_not_possible_says_why_and_changes_nothing(
    build: Callable[[], Line], command: type[PipelineCommand], why: str
) -> None:
    line = build()
    before = line.records
    assert line.ask(command).why == why
    assert line.records == before


MOVES = ("runs", "admit", "start", "succeeds", "fails", "obeys")
FOR_THE_PIPELINE = st.tuples(st.just("ask"), st.sampled_from(COMMANDS), st.booleans())
FOR_A_STEP = st.tuples(st.sampled_from(MOVES), st.integers(0, 3))
FOR_A_STEP_ALONE = st.tuples(st.just("by_itself"), st.integers(0, 3), st.sampled_from(COMMANDS), st.booleans())


PLAYS = (
    st.integers(1, 4),
    st.lists(st.one_of(FOR_A_STEP, FOR_A_STEP, FOR_THE_PIPELINE, FOR_A_STEP_ALONE), max_size=40),
)
"""So many steps, and what happens to them."""


@settings(max_examples=100, deadline=None)
@given(*PLAYS)
def test_a_step_never_starts_early_none_is_lost_and_the_word_is_that_of_the_rule(
    steps: int, moves: list[tuple[Any, ...]]
) -> None:
    line = Line.of(steps, retries=1, by_hand=1000)
    for move in moves:
        _move(line, move)
        assert len(line.records) == steps
        for index, state in enumerate(line.states):
            before = line.states[:index]
            assert state not in ACTIVE or set(before) <= {OK}, "it started before the steps before it had succeeded"
            assert state not in (Q, P) or not TERMINAL.difference({OK}).intersection(before), "nobody will reach it"
        assert line.word == _rule_9(line.states)
    _goes_on_to_success(line)


def _move(line: Line, move: tuple[Any, ...]) -> None:
    what, *rest = move
    if what == "ask":
        command, by_admin = rest
        line.ask(command, **({"by_admin": by_admin} if command in (i.Pause, i.Resume) else {}))
    elif rest[0] < len(line.jobs):
        if what == "by_itself":
            step, command, by_admin = rest
            line.by_itself(step, command, **({"by_admin": by_admin} if command in (i.Pause, i.Resume) else {}))
        else:
            getattr(line, what)(*rest)


def _rule_9(states: list[State]) -> str:
    """Rule 9 of the design, word by word."""
    if not set(states) <= TERMINAL:
        for word, some in (("running", ACTIVE), ("paused", {P}), ("queued", {Q})):
            if some.intersection(states):
                return word
    if set(states) == {OK}:
        return "succeeded"
    if states[0] is OK:
        return "partial"
    return "failed" if BAD in states else "stopped"


def _goes_on_to_success(line: Line) -> None:
    """Whatever was done to it: let what is under way come to its end, and it can be brought to success as one."""
    for _ in range(6):
        for step in range(len(line.jobs)):
            line.by_itself(step, i.Release, by_admin=True)
            line.start(step).obeys(step).runs(step).succeeds(step)
        line.ask(i.Resume, by_admin=True).ask(i.Retry)
    assert line.word == "succeeded", line.states
