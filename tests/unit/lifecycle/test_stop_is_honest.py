"""Rule 6: an exit keeps its real outcome unless the backend's side recorded our stop before it."""

from itertools import product
from typing import Any

import pytest

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import Desired, State
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that, at

WISHES: dict[Desired, type[i.CommandBase] | None] = {
    Desired.RUN: None,
    Desired.PAUSED: i.Pause,
    Desired.STOPPED: i.Stop,
}
BY_WISH = {Desired.PAUSED: EndReason.PAUSED_BY_USER, Desired.STOPPED: EndReason.STOPPED_BY_USER}
ENDS: dict[str, tuple[dict[str, Any], EndReason]] = {
    "exit 0": ({"code": 0}, EndReason.SUCCEEDED),
    "exit 3": ({"code": 3}, EndReason.EXIT_NONZERO),
    "signal 15": ({"code": None, "signal": 15}, EndReason.KILLED_BY_SIGNAL),
    "out of memory": ({"code": 137, "reason": EndReason.OUT_OF_MEMORY}, EndReason.OUT_OF_MEMORY),
}
RECORDED = {"our stop was recorded before it": True, "our stop was not recorded": False, "it cannot tell": None}


def _expected(desired: Desired, recorded: bool | None, end: str) -> EndReason:
    """With nothing to compare it is what was wished; a reason of the backend's own is something to compare."""
    own = ENDS[end][1]
    if desired is Desired.RUN or recorded is False:
        return own
    if recorded is None and end == "out of memory":
        return own
    return BY_WISH[desired]


@pytest.mark.parametrize(
    ("desired", "recorded", "end"),
    [
        pytest.param(desired, RECORDED[word], end, id=f"{end}, {word}, wished to {desired}")
        for desired, word, end in product(Desired, RECORDED, ENDS)
    ],
)
def test_stop_is_honest(desired: Desired, recorded: bool | None, end: str) -> None:
    job = a_job().started()
    command = WISHES[desired]
    if command is not None:
        job.ask(command)
    job.exited(**(ENDS[end][0] | {"stop_recorded": recorded})).sealed()
    assert job.end is _expected(desired, recorded, end)
    assert job.record.exit.code == ENDS[end][0]["code"], "the exit is shown, whatever the verdict"


@pytest.mark.parametrize("command", [i.Stop, i.Pause], ids=["stop", "pause"])
def test_a_wish_after_the_exit_was_known_does_not_change_the_outcome(command: type[i.CommandBase]) -> None:
    """The order of what the record saw, not of clocks, is compared."""
    job = a_job().started().exited(0, stop_recorded=None).ask(command).sealed()
    assert job.state is State.SUCCEEDED


def test_a_stop_after_a_known_failure_keeps_the_failure_and_keeps_the_retry_away() -> None:
    job = a_job(retries=3).started().exited(3, stop_recorded=None).ask(i.Stop).sealed()
    assert (job.state, job.end) == (State.FAILED, EndReason.EXIT_NONZERO)


def test_a_force_that_follows_a_stop_does_not_make_it_late() -> None:
    job = a_job().started().ask(i.Stop).exited(None, signal=15, stop_recorded=None).ask(i.Stop, force=True).sealed()
    assert job.end is EndReason.STOPPED_BY_USER


def test_the_message_says_who_stopped_it_and_when() -> None:
    job = a_job().started().ask(i.Stop, actor="kim", at=at(3)).exited(None, signal=15, stop_recorded=True).sealed()
    assert job.record.message == "stopped: by kim at 2026-11-30 09:00:03 UTC"


def test_a_policy_that_stops_is_named() -> None:
    job = a_job().started().tell(f.PolicyStop, policy="budget", reason="spent", at=at(3))
    assert job.events[-1] == "desired"
    job.exited(None, signal=15, stop_recorded=True).sealed()
    assert job.record.message == "stopped: by policy budget (spent) at 2026-11-30 09:00:03 UTC"


def test_a_cancel_at_the_backend_that_nobody_here_asked_for_says_so() -> None:
    job = a_job(retries=3).started()
    job.exited(None, signal=15, reason=EndReason.STOPPED_AT_BACKEND, message="by uid 61007").sealed()
    assert (job.state, job.end) == (State.STOPPED, EndReason.STOPPED_AT_BACKEND)
    assert job.record.message == "stopped at the backend, not through Tidegate: by uid 61007"


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: a_job().admitted(), id="while its input is checked"),
        pytest.param(lambda: a_job().admitted().staged(), id="while it is launched"),
        pytest.param(lambda: a_job().admitted().staged().accepted(), id="while the backend has it waiting"),
        pytest.param(lambda: a_job().started(), id="while it runs"),
    ],
)
def test_a_stop_stays_asked_for_and_says_so(build: object) -> None:
    """Also while the backend cannot be reached."""
    assert callable(build)
    job: Job = build()
    state = job.state
    job.ask(i.Stop)
    assert (job.state, job.record.desired_state) == (state, Desired.STOPPED)
    active = next(stage for stage in job.record.stages if stage.status == "active")
    assert active.waiting_on == "being stopped, asked by rin"


def test_a_stop_of_a_waiting_job_is_final_at_once() -> None:
    job = a_job().ask(i.Stop)
    assert (job.state, job.events) == (State.STOPPED, ["stopped"])


def test_a_stop_of_a_paused_job_is_final_at_once_and_leaves_the_attempt_as_it_was() -> None:
    job = a_job_that(State.PAUSED).ask(i.Stop)
    assert (job.state, job.end) == (State.STOPPED, EndReason.STOPPED_BY_USER)
    assert job.record.current.end_reason is EndReason.PAUSED_BY_USER


def test_a_stop_before_the_launch_never_ran() -> None:
    job = a_job().admitted().staged().ask(i.Stop).released(ran=False).copied_back("none")
    assert (job.state, job.record.started_at) == (State.STOPPED, None)
    assert [stage.status for stage in job.record.stages] == ["passed", "passed", "skipped", "skipped", "skipped"]
