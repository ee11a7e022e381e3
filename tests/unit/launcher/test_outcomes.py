"""What the backend's answers make of a launch."""

from dataclasses import replace
from signal import SIGUSR2

import pytest

from services.launcher.domain import State
from services.launcher.outcomes import Never, apply, outcome, pause_seconds, request
from shared.backends.local.messages import LaunchAnswer, LaunchKind
from shared.contracts.spec import JobSpec
from shared.lifecycle.reasons import EndReason
from tests.unit.launcher.rows import NOW, ROW

LEASED = replace(ROW, state=State.SUBMITTING, token="t", deadline=NOW, grace_seconds=None)
SPEC = JobSpec(command=("true",))


def after(kind: LaunchKind, reason: str | None = None) -> tuple[State, bool, str | None]:
    """State, whether the backend may have it, and what it waits for, after an answer."""
    row = apply(LEASED, outcome(LaunchAnswer(ROW.submission, kind, reason, "a sentence"), NOW), NOW)
    return (row.state, row.asked, row.waits_for)


def test_every_answer_is_decided() -> None:
    assert after(LaunchKind.ACCEPTED) == (State.SUBMITTED, True, None)
    assert after(LaunchKind.ALREADY) == (State.SUBMITTED, True, None)
    assert after(LaunchKind.BUSY, "gpus") == (State.INTENT, False, "a sentence")
    assert after(LaunchKind.UNCLEAR) == (State.INTENT, True, "a sentence")
    assert after(LaunchKind.REFUSED, "too_late") == (State.INTENT, True, "a sentence")
    assert after(LaunchKind.REFUSED, "too_many_gpus") == (State.REVOKING, False, None)


@pytest.mark.parametrize("kind", list(LaunchKind))
def test_no_answer_leaves_a_lease_behind(kind: LaunchKind) -> None:
    row = apply(LEASED, outcome(LaunchAnswer(ROW.submission, kind, None, ""), NOW), NOW)
    assert (row.owner, row.token, row.deadline) == (None, None, None)


def test_pauses_grow_to_two_seconds() -> None:
    pauses = [pause_seconds(tries) for tries in range(100)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.02, 2.0)


HERE = f"work/acme/{ROW.job}/a1/"


@pytest.mark.parametrize("directory", [None, "", "work/acme/other/a1/e1", HERE, f"{HERE}e1/x", f"{HERE}.."])
def test_a_directory_that_is_not_the_attempts_own_is_refused(directory: str | None) -> None:
    made = request(replace(LEASED, directory=directory), SPEC, 10)
    assert isinstance(made, Never)
    assert made.reason is EndReason.CONFIGURATION


def test_an_order_says_how_the_command_is_warned_and_ended_at_its_limit() -> None:
    row = replace(LEASED, directory=f"{HERE}e1", time_limit_seconds=600, resumed=True)
    made = request(
        row, JobSpec(command=("true",), time_limit_seconds=600, warning_signal="USR2", warning_seconds=90), 10
    )
    assert not isinstance(made, Never)
    told = (made.time_limit_seconds, made.warning_signal, made.warning_seconds, made.stop_grace_seconds, made.resumed)
    assert told == (600, SIGUSR2, 90, 10, True)
    own = request(row, JobSpec(command=("true",), stop_grace_seconds=45), 10)
    assert not isinstance(own, Never)
    assert own.stop_grace_seconds == 45


def test_a_workstation_whose_lifetime_is_used_up_is_not_started() -> None:
    made = request(replace(LEASED, directory=f"{HERE}e1", time_limit_seconds=0), SPEC, 10)
    assert isinstance(made, Never)
    assert "lifetime is used up" in made.message


def test_an_order_names_the_directory_and_carries_the_deadline() -> None:
    made = request(replace(LEASED, directory=f"{HERE}e1"), SPEC, 10)
    assert not isinstance(made, Never)
    assert (made.directory, made.run, made.not_after) == ("e1", ROW.job, NOW)
