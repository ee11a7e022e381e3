"""What the backend's answers make of a launch."""

from dataclasses import replace

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
    made = request(replace(LEASED, directory=directory), SPEC)
    assert isinstance(made, Never)
    assert made.reason is EndReason.CONFIGURATION


def test_an_order_names_the_directory_and_carries_the_deadline() -> None:
    made = request(replace(LEASED, directory=f"{HERE}e1"), SPEC)
    assert not isinstance(made, Never)
    assert (made.directory, made.run, made.not_after) == ("e1", ROW.job, NOW)
