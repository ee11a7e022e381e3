"""Rule 1: every (state, input) pair has a decided outcome: applied, ignored as stale, or refused with a reason."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.subjects import FACT_KINDS, JOB_EVENTS
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.duties import duties, holdings
from shared.lifecycle.states import ACTIVE, TERMINAL, State
from shared.lifecycle.table import INPUT_KINDS, TRANSITIONS, Step
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import a_job_that, at, segment
from tests.unit.lifecycle.world import World

GRID = Path(__file__).with_name("grid.txt")

FIELDS: dict[str, dict[str, Any]] = {
    "admitted": {"admission": 1},
    "held": {"gates": ({"name": "capacity", "reason": "full", "scope": "local", "lifted_by": "time"},)},
    "policy_stop": {"policy": "budget", "reason": "spent"},
    "policy_pause": {"policy": "budget", "reason": "spent"},
    "input_invalid": {"findings": ({"code": "missing", "place": "a", "message": "a is not there"},)},
    "staged": {"directory": "a1/e1", "nothing_to_copy": True},
    "staging_failed": {"message": "full"},
    "staging_sealed": {"staged": True, "outcome": "none"},
    "recopied": {"recopy": 1, "outcome": "verified"},
    "accepted": {"segment": segment(), "backend": "local", "cluster": "local", "ref": "r1"},
    "launch_refused": {"message": "no such partition"},
    "launcher_sealed": {"ran": False},
    "seen_pending": {"segment": segment(), "raw_state": "PENDING"},
    "seen_running": {"segment": segment(), "raw_state": "RUNNING", "started_at": at(4)},
    "segment_requeued": {"segment": segment(), "ended_at": at(5), "raw_reason": "preempted"},
    "exited": {"segment": segment(), "code": 0, "ended_at": at(5), "raw_state": "COMPLETED"},
    "snooze": {"until": at(60)},
    "hold": {"reason": "by hand"},
    "upstream_failed": {"step": "train"},
}
"""What each kind needs beside what all facts or commands have."""


def an_input(kind: str, *, attempt: int = 1, n: int = 10_000) -> i.AnyInput:
    """The plainest input of a kind."""
    common: dict[str, Any] = {"kind": kind, "actor": "rin", "at": at(20)}
    if kind in {kind for kinds in FACT_KINDS.values() for kind in kinds}:
        common |= {"job": "j", "tenant": "acme", "attempt": attempt, "version": {"n": n}, "source": "test"}
    return i.INPUT.validate_python(common | FIELDS.get(kind, {}))


def checked_in_grid() -> dict[tuple[State, str], Step]:
    """The grid as it was agreed on: one line per input, one column per state."""
    lines = [line.split("|") for line in GRID.read_text().splitlines() if line and not line.startswith("#")]
    states = [State(cell.strip()) for cell in lines[0][1:]]
    return {
        (state, row[0].strip()): Step(cell.strip())
        for row in lines[1:]
        for state, cell in zip(states, row[1:], strict=True)
    }


@pytest.mark.parametrize(
    ("state", "kind"), [pytest.param(*pair, id=f"{pair[1]} when {pair[0]}") for pair in product(State, INPUT_KINDS)]
)
def test_total(state: State, kind: str) -> None:
    """A changed cell must be changed in grid.txt, on purpose."""
    row = TRANSITIONS[state, kind]
    assert row.step is checked_in_grid()[state, kind]
    assert (row.why is not None) == (row.step in (Step.IGNORE, Step.REFUSE))
    record = a_job_that(state).record
    done = advance(record, [an_input(kind)], at(30))
    outcome = done.outcomes[0]
    if row.step is Step.IGNORE:
        assert outcome.what == "ignored"
    if row.step is Step.REFUSE:
        assert outcome.what == "refused"
    assert (outcome.why is None) == (outcome.what == "applied")
    assert (done.event is not None) == (outcome.what == "applied")


def test_the_grid_has_every_pair_and_no_other() -> None:
    assert set(checked_in_grid()) == set(product(State, INPUT_KINDS)) == set(TRANSITIONS)


def test_every_input_of_the_contracts_is_in_the_table() -> None:
    facts = {kind for kinds in FACT_KINDS.values() for kind in kinds}
    commands = {model.model_fields["kind"].default for model in i.CommandBase.__subclasses__()}
    assert facts | commands == set(INPUT_KINDS)
    assert facts == {model.model_fields["kind"].default for model in f.FactBase.__subclasses__()}


@settings(max_examples=100, deadline=None)
@given(worlds(), st.sampled_from(INPUT_KINDS), st.integers(-1, 1))
def test_every_record_answers_every_input(world: World, kind: str, attempts_off: int) -> None:
    record = world.record
    item = an_input(kind, attempt=record.attempt + attempts_off)
    done = advance(record, [item], world.now)
    outcome = done.outcomes[0]
    match outcome.what:
        case "applied":
            assert outcome.why is None
            assert done.event in JOB_EVENTS
            assert done.record.seq == record.seq + 1
        case "ignored" | "refused":
            assert outcome.why
            assert outcome.why[0].islower() or not outcome.why[0].isalpha()
    if done.event is None:
        assert done.record == record
    if outcome.what != "applied" and done.event is not None:
        assert kind == "admitted"
        assert done.record.admission_refused == FIELDS["admitted"]["admission"]


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_every_history_comes_to_rest_once_its_services_answer(world: World) -> None:
    """No job is stuck: while it has not ended somebody owes something, and answering what is owed ends it."""
    for entry in world.log:
        if entry.after.state in ACTIVE | {State.QUEUED} and not entry.after.deleted:
            assert duties(entry.after), entry.after
    assert world.calm_down(rounds=40)
    assert world.record.state in TERMINAL | {State.PAUSED}
    assert holdings(world.record) == (False, False), "nothing stays reserved"
    assert all(backend.over for backend in world.backends.values()), "nothing of it runs on"
    assert all(
        segment.ended is not None or segment.started_at is None
        for attempt in world.record.attempts
        for segment in attempt.segments
    ), "nothing is counted on"


def test_a_deleted_job_refuses_everything() -> None:
    gone = a_job_that(State.SUCCEEDED).ask(i.Delete)
    assert gone.events[-1] == "deleted"
    assert [gone.take(an_input(kind)).last.what for kind in INPUT_KINDS] == ["refused"] * len(INPUT_KINDS)


def test_what_is_refused_or_ignored_makes_no_event() -> None:
    job = a_job_that(State.SUCCEEDED)
    before = job.record
    job.ask(i.Stop)
    assert job.record is before
    assert job.why == "it succeeded already"
