"""What is done about a revoked attempt, from its claims alone."""

from dataclasses import replace
from datetime import timedelta
from signal import SIGUSR1

import pytest

from services.launcher.backend import Holder
from services.launcher.endings import AskToStop, KillNow, Sealable, Wait, asked, next_step
from services.launcher.local import shown_of
from shared.backends.local.sightings import LocalState, Seen
from tests.unit.launcher.rows import NOW, ROW
from tests.unit.watcher.records import SUBMISSION, an_exit


def holder(state: LocalState, *, ran: bool = True, reason: str | None = None) -> Holder:
    """A claim, and what the backend shows of its submission."""
    end = an_exit(ran=ran, reason=reason) if state is LocalState.EXITED else None
    seen = Seen(SUBMISSION, "tidegate", ROW.job, 1, state, None, None, None, None, end)
    return Holder(SUBMISSION, shown_of(seen, ROW.tenant))


def test_without_a_claim_nothing_ran_and_nothing_can() -> None:
    assert next_step(ROW, (), NOW) == Sealable(ran=False)


def test_an_ended_claim_ran() -> None:
    assert next_step(ROW, (holder(LocalState.EXITED),), NOW) == Sealable(ran=True)


@pytest.mark.parametrize("reason", ["revoked", "stopped_before_start", "attempt_claimed"])
def test_a_runner_that_never_started_the_command_did_not_run_it(reason: str) -> None:
    assert next_step(ROW, (holder(LocalState.EXITED, ran=False, reason=reason),), NOW) == Sealable(ran=False)


def test_a_command_that_was_not_found_counts_as_run_because_its_end_is_told() -> None:
    end = holder(LocalState.EXITED, ran=False, reason="command_not_found")
    assert next_step(ROW, (end,), NOW) == Sealable(ran=True)


def test_a_claim_without_any_record_counts_as_run_and_is_swept_first() -> None:
    assert next_step(ROW, (Holder(SUBMISSION, None),), NOW) == Sealable(ran=True, gone=(SUBMISSION,))


def test_a_dead_supervisors_rest_is_swept_first() -> None:
    assert next_step(ROW, (holder(LocalState.GONE),), NOW) == Sealable(ran=True, gone=(SUBMISSION,))


@pytest.mark.parametrize("state", [LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.RUNNING])
def test_what_lives_is_asked_once_waited_for_and_then_killed(state: LocalState) -> None:
    alive = (holder(state),)
    assert next_step(ROW, alive, NOW) == AskToStop((SUBMISSION,), 10)
    row = asked(ROW, 10, NOW)
    assert next_step(row, alive, NOW + timedelta(seconds=14)) == Wait()
    assert next_step(row, alive, NOW + timedelta(seconds=15)) == KillNow((SUBMISSION,))


def test_a_shorter_grace_is_asked_for_again() -> None:
    row = replace(asked(ROW, 10, NOW), grace_seconds=0)
    assert next_step(row, (holder(LocalState.RUNNING),), NOW) == AskToStop((SUBMISSION,), 0)


def test_what_is_paused_is_asked_by_its_checkpoint_signal() -> None:
    row = replace(ROW, stop_signal=SIGUSR1, pausing=True, grace_seconds=60)
    wanted = AskToStop((SUBMISSION,), 60, SIGUSR1, pausing=True)
    assert next_step(row, (holder(LocalState.RUNNING),), NOW) == wanted


def test_one_live_claim_of_two_keeps_the_attempt_open() -> None:
    both = (holder(LocalState.EXITED), holder(LocalState.RUNNING))
    assert isinstance(next_step(ROW, both, NOW), AskToStop)
