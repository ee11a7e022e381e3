"""The table from the backend's words to facts is total, and an unknown word ends nothing."""

from dataclasses import replace

import pytest

from services.watcher.domain import ENDS, Unknown, findings, is_alive
from shared.backends.local import command, supervisor
from shared.backends.local.records import ExitRecord, SpecRecord, StartedRecord
from shared.backends.local.sightings import LocalState, Seen
from shared.lifecycle.facts import FACT
from shared.lifecycle.reasons import EndReason
from tests.unit.watcher.records import START, SUBMISSION, SUPERVISOR, an_exit


def a_sighting(state: LocalState, end: ExitRecord | None = None) -> Seen:
    """What an observation shows."""
    spec = SpecRecord(SUBMISSION, "acme", "run", "e1", ("true",), (), START)
    started = StartedRecord(SUBMISSION, SUPERVISOR, None, START, ()) if state is LocalState.RUNNING else None
    return Seen(SUBMISSION, "tidegate", "j" + "0" * 26, 1, state, spec, None, started, None, end)


def words() -> set[str]:
    """Every reason that the backend's own code can record: its modules name each as a constant."""
    return {
        value
        for module in (command, supervisor)
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }


def test_every_word_that_the_backend_can_record_has_a_row_and_no_row_is_made_up() -> None:
    assert words() == set(filter(None, ENDS))


@pytest.mark.parametrize("word", sorted(filter(None, ENDS)))
@pytest.mark.parametrize("ran", [True, False])
def test_a_known_end_is_a_valid_fact_or_none(word: str, ran: bool) -> None:
    found = findings(a_sighting(LocalState.EXITED, an_exit(ran=ran, code=126, reason=word)))
    assert not isinstance(found, Unknown)
    for one in found:
        head = {"kind": one.kind, "job": one.job, "attempt": 1, "version": {"n": 1}, "at": START, "source": "x"}
        fact = FACT.validate_python({**one.fact, **head})
        assert fact.kind == "exited"
        assert fact.reason is not None
        assert fact.raw_state == word


@pytest.mark.parametrize("word", ["revoked", "attempt_claimed", "stopped_before_start"])
def test_a_runner_that_never_started_the_command_has_no_exit_to_tell(word: str) -> None:
    assert findings(a_sighting(LocalState.EXITED, an_exit(ran=False, code=75, reason=word))) == ()


def test_an_unknown_word_is_unknown_and_no_end() -> None:
    assert findings(a_sighting(LocalState.EXITED, an_exit(reason="abducted"))) == Unknown("abducted")


def test_a_failed_supervisor_is_configuration_before_the_start_and_a_loss_after_it() -> None:
    before = findings(a_sighting(LocalState.EXITED, an_exit(ran=False, code=126, reason="supervisor_failed")))
    after = findings(a_sighting(LocalState.EXITED, an_exit(code=None, reason="supervisor_failed")))
    assert not isinstance(before, Unknown)
    assert not isinstance(after, Unknown)
    assert before[0].fact["reason"] == EndReason.CONFIGURATION
    assert after[0].fact["reason"] == EndReason.LOST


def test_a_stop_that_the_backend_recorded_is_told_with_the_exit() -> None:
    end = replace(an_exit(), stop_seen_at=START)
    found = findings(a_sighting(LocalState.EXITED, end))
    assert not isinstance(found, Unknown)
    assert found[0].fact["stop_recorded"] is True


@pytest.mark.parametrize("state", list(LocalState))
def test_only_what_has_a_supervisor_is_alive(state: LocalState) -> None:
    alive = {LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.RUNNING}
    assert is_alive(a_sighting(state)) == (state in alive)


@pytest.mark.parametrize("state", [LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.GONE])
def test_what_has_neither_started_nor_ended_is_not_told(state: LocalState) -> None:
    assert findings(a_sighting(state)) == ()
