"""The launch protocol, every interleaving: whole it never runs twice nor loses a job; without any one guard it does."""

import importlib
from functools import reduce

import pytest

from tests.model.search import explore
from tests.model.state import Guard
from tests.model.step import STEPS
from tests.model.worlds import LONG, SECOND_LINES, TELLING, WHOLE, without


@pytest.mark.parametrize("name", WHOLE)
def test_no_interleaving_runs_an_attempt_twice_or_loses_a_job(name: str) -> None:
    result = explore(WHOLE[name])
    assert result.violation is None, f"\n{result.violation}"
    assert result.states > 10_000, "the search has seen next to nothing: is a step of the model never taken?"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LONG)
def test_nor_does_it_in_larger_worlds(name: str) -> None:
    result = explore(LONG[name])
    assert result.violation is None, f"\n{result.violation}"


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        (Guard.CLAIM, "two runs of one attempt are alive"),
        (Guard.LOOK, "a command starts after the seal"),
        (Guard.CLAIM_FIRST, "a command starts after the seal"),
        (Guard.TOKEN, "an attempt that is being ended is told as refused"),
        (Guard.LEASE, "the job is lost: nothing leads to its end"),
        (Guard.NOT_AFTER, "a command starts after the seal"),
        (Guard.REVOKING_FIRST, "an attempt that is being ended is told as refused"),
        (Guard.READ_AFTER, "a command starts after the seal"),
        (Guard.AWAIT, "a command starts after the seal"),
        (Guard.SWEEP, "the attempt is sealed while something of it lives"),
        (Guard.ONE_VOTE, "the vote is given twice"),
        (Guard.HIGHER_CLAIM, "two runs of one attempt are alive"),
    ],
)
def test_without_a_guard_the_search_finds_what_goes_wrong(guard: Guard, problem: str) -> None:
    found = explore(without(TELLING[guard], guard)).violation
    assert found is not None
    assert found.problem == problem
    assert len(found.trace) <= 20, f"longer than anybody reads:\n{found}"


def test_every_guard_is_needed_somewhere_but_for_the_one_that_the_claim_stands_in_for() -> None:
    assert set(Guard) - set(TELLING) == {Guard.ONCE}


@pytest.mark.parametrize("guard", SECOND_LINES)
def test_where_another_guard_stands_in_nothing_goes_wrong_without_it(guard: Guard) -> None:
    assert explore(without(SECOND_LINES[guard], guard)).violation is None


@pytest.mark.parametrize("step", [step for step in STEPS if ":" in step.stands_for and " " not in step.stands_for])
def test_what_a_step_stands_for_is_there(step: object) -> None:
    module, _, name = step.stands_for.partition(":")  # type: ignore[attr-defined] # a Step, as pytest gives it
    assert reduce(getattr, name.split("."), importlib.import_module(module))
