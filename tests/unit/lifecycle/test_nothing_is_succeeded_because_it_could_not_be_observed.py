"""Rule 4: success needs positive evidence; what is gone without any witness is lost."""

from typing import Any

import pytest
from hypothesis import given, settings

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.states import State
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import a_job, at, segment
from tests.unit.lifecycle.world import World


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_nothing_is_succeeded_because_it_could_not_be_observed(world: World) -> None:
    for entry in world.log:
        if entry.after.state is not State.SUCCEEDED or entry.before.state is State.SUCCEEDED:
            continue
        seen = picture(entry.after.current)
        assert seen.exited is not None
        assert (seen.exited.code, seen.exited.signal) == (0, None)
        copied = seen.staging_sealed
        if entry.after.has_outputs and not isinstance(entry.item, f.Recopied):
            assert copied is not None
            assert copied.outcome == "verified"


NO_SUCCESS: dict[str, tuple[dict[str, Any], EndReason]] = {
    "exit 3": ({"code": 3}, EndReason.EXIT_NONZERO),
    "exit 0 and a signal": ({"code": 0, "signal": 9}, EndReason.KILLED_BY_SIGNAL),
    "a signal alone": ({"code": None, "signal": 11}, EndReason.KILLED_BY_SIGNAL),
    "out of memory with exit 0": ({"code": 0, "reason": EndReason.OUT_OF_MEMORY}, EndReason.OUT_OF_MEMORY),
    "its time limit with exit 0": ({"code": 0, "reason": EndReason.TIME_LIMIT}, EndReason.TIME_LIMIT),
    "nothing recorded of the end": ({"code": None}, EndReason.LOST),
    "nothing recorded, called a success": ({"code": None, "reason": EndReason.SUCCEEDED}, EndReason.LOST),
    "exit 1, called a success": ({"code": 1, "reason": EndReason.SUCCEEDED}, EndReason.EXIT_NONZERO),
    "exit 1, called a pause": ({"code": 1, "reason": EndReason.PAUSED_BY_USER}, EndReason.EXIT_NONZERO),
    "cancelled at the backend": ({"code": 0, "reason": EndReason.STOPPED_AT_BACKEND}, EndReason.STOPPED_AT_BACKEND),
}


@pytest.mark.parametrize(("exited", "reason"), [pytest.param(*case, id=name) for name, case in NO_SUCCESS.items()])
def test_an_end_that_is_no_success_is_none(exited: dict[str, Any], reason: EndReason) -> None:
    job = a_job().started().exited(**exited).sealed()
    assert job.end is reason
    assert job.state is REASONS[reason].state


@pytest.mark.parametrize(
    ("build", "stage"),
    [
        pytest.param(lambda: a_job().started(), "running_job", id="while it ran"),
        pytest.param(lambda: a_job().admitted().staged().accepted(), "starting_cluster", id="before it ran"),
    ],
)
def test_gone_without_a_witness_is_lost(build: Any, stage: str) -> None:
    job = build().tell(f.Lost, last_seen_at=at(5)).sealed(ran=False, outcome="none")
    assert (job.state, job.end, job.record.failed_stage) == (State.FAILED, EndReason.LOST, stage)
    assert job.record.exit.code is None


def test_lost_waits_for_the_launchers_vote_before_outputs_are_looked_for() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(5))
    assert job.state is State.RUNNING
    assert job.record.stages[3].waiting_on == "not seen at the backend since 09:00:14 UTC"


def test_outputs_that_nobody_looked_for_are_no_success() -> None:
    """The stager voted because the launch was called refused; then it turned out that the command had run."""
    job = a_job().admitted().staged().tell(f.LaunchRefused, message="timed out").copied_back("none")
    job.exited(0).released()
    assert (job.state, job.end) == (State.FAILED, EndReason.COPY_BACK_FAILED)


def test_without_declared_outputs_there_is_nothing_to_look_for() -> None:
    job = a_job(outputs=False).started().exited(0).released().copied_back("none")
    assert job.state is State.SUCCEEDED


def test_a_success_that_only_the_runner_reported_says_so() -> None:
    job = a_job().started().exited(0, self_reported=True).sealed()
    assert job.record.exit.self_reported
    assert "the backend did not confirm it" in job.record.warnings[0]
    assert "the job's own runner" in job.record.warnings[0]


def test_a_confirmed_end_replaces_the_runners_report() -> None:
    job = a_job().started().exited(0, self_reported=True).exited(0).sealed()
    assert job.record.warnings == ()


def test_a_remark_on_a_success_is_a_warning() -> None:
    """A signalled step under a completed allocation."""
    job = a_job().started().exited(0, message="step 0 was ended by signal 12").sealed()
    assert (job.state, job.record.warnings) == (State.SUCCEEDED, ("step 0 was ended by signal 12",))


def test_a_failed_copy_never_replaces_how_the_command_ended() -> None:
    job = a_job().started().exited(3).released().copied_back("failed", message="the store is down")
    assert job.end is EndReason.EXIT_NONZERO
    assert job.record.warnings == ("its outputs could not be copied back: the store is down",)


def test_being_stopped_while_it_is_lost_is_stopped() -> None:
    job = a_job().started().ask(i.Stop).tell(f.Lost, last_seen_at=at(5)).sealed(ran=True, outcome="none")
    assert job.end is EndReason.STOPPED_BY_USER


def test_what_is_found_after_a_loss_and_ended_by_us_is_still_a_loss() -> None:
    """Its own failures' budget is not drawn on."""
    job = a_job(retries=1, infrastructure=1).started().tell(f.Lost, last_seen_at=at(5))
    job.exited(None, signal=9, stop_recorded=True).sealed()
    assert job.record.attempts[0].end_reason is EndReason.LOST
    assert (job.record.retries.used, job.record.retries.infrastructure_used) == (0, 1)


def test_a_second_segment_needs_its_own_end() -> None:
    """The old segment's end is not the attempt's."""
    job = a_job(infrastructure=5).started().exited(0).running(segment(1, created=8), started=8)
    job.released().copied_back("verified")
    assert job.state is State.RUNNING
    job.exited(3, segment(1, created=8), started_at=at(8))
    assert job.end is EndReason.EXIT_NONZERO
