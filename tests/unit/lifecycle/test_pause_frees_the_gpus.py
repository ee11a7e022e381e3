"""Rule 7: pause stops the command, keeps its outputs, seals, and holds nothing; resume is attempt n + 1."""

import pytest

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.duties import Duty, duties, holdings
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import Desired, Phase, State
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that, at


def _paused_while_running(kind: str = "batch") -> Job:
    return a_job(kind=kind).started().ask(i.Pause).exited(None, signal=15, stop_recorded=True).sealed()


def test_pause_frees_the_gpus() -> None:
    job = a_job().started().ask(i.Pause)
    assert (job.state, job.record.desired_state) == (State.RUNNING, Desired.PAUSED)
    assert Duty.STOP in duties(job.record)
    job.exited(None, signal=15, stop_recorded=True)
    assert holdings(job.record) == (True, True)
    job.released()
    assert job.state is State.RUNNING, "its outputs are not back yet"
    job.copied_back(files=3, size_bytes=30, manifest="m")
    assert (job.state, job.end) == (State.PAUSED, EndReason.PAUSED_BY_USER)
    assert holdings(job.record) == (False, False)
    assert job.record.current.outputs is not None
    assert job.record.current.outputs.manifest == "m"
    assert duties(job.record) == frozenset()


def test_resume_passes_every_gate_again_as_the_next_attempt_of_the_same_run() -> None:
    job = _paused_while_running()
    job.ask(i.Resume)
    assert (job.state, job.record.attempt, job.events[-1]) == (State.QUEUED, 2, "queued")
    assert job.record.desired_state is Desired.RUN
    assert duties(job.record) == {Duty.ADMIT}
    assert job.record.attempts[0].end_reason is EndReason.PAUSED_BY_USER


def test_resume_uses_nothing_of_the_budgets() -> None:
    job = _paused_while_running().ask(i.Resume)
    assert (job.record.retries.used, job.record.retries.infrastructure_used) == (0, 0)
    assert job.record.current.cooldown_until is None


def test_a_waiting_job_is_paused_at_once() -> None:
    job = a_job().tell(f.Held, gates=(f.Gate(name="capacity", reason="full", scope="c", lifted_by="time"),))
    job.ask(i.Pause)
    assert (job.state, job.events[-1], job.record.gate) == (State.PAUSED, "paused", None)
    assert job.ask(i.Resume).record.attempt == 2


@pytest.mark.parametrize(
    ("end", "state"),
    [
        pytest.param({"code": 0, "stop_recorded": False}, State.SUCCEEDED, id="it finished by itself just before"),
        pytest.param({"code": 1, "stop_recorded": False}, State.FAILED, id="it failed by itself just before"),
        pytest.param({"code": 0, "stop_recorded": True}, State.PAUSED, id="it wrote its checkpoint and exited 0"),
        pytest.param({"code": None, "signal": 9, "stop_recorded": None}, State.PAUSED, id="nobody can tell"),
    ],
)
def test_a_paused_job_keeps_its_real_end(end: dict[str, object], state: State) -> None:
    assert a_job(retries=2).started().ask(i.Pause).exited(**end).sealed().state is state  # type: ignore[arg-type]  # cases


def test_a_pause_before_the_launch_never_ran() -> None:
    job = a_job().admitted().ask(i.Pause)
    assert duties(job.record) == {Duty.SEAL_STAGING}
    job.copied_back("none", staged=False)
    assert (job.state, job.record.started_at) == (State.PAUSED, None)


def test_a_lost_job_is_not_paused() -> None:
    job = a_job().started().ask(i.Pause).tell(f.Lost, last_seen_at=at(6)).sealed(outcome="none")
    assert job.end is EndReason.LOST


def test_a_policys_pause_is_named() -> None:
    job = a_job().started().tell(f.PolicyPause, policy="window", reason="closed", at=at(6))
    assert job.record.wish is not None
    assert job.record.wish.by_policy
    job.exited(None, signal=15, stop_recorded=True).sealed()
    assert job.record.message == "paused: by policy window (closed) at 2026-11-30 09:00:06 UTC"


def test_a_policys_pause_told_again_does_not_pause_the_next_attempt() -> None:
    job = a_job_that(State.RUNNING)
    pause = job.fact(f.PolicyPause, policy="window", reason="closed")
    job.take(pause).exited(None, signal=15, stop_recorded=True).sealed().ask(i.Resume).take(pause)
    assert (job.state, job.last.what) == (State.QUEUED, "ignored")


@pytest.mark.parametrize(
    ("outcome", "manifest", "warning"),
    [
        ("verified", "m", "left out of its outputs: 's' is a socket"),
        ("failed", "m", "some of its outputs could not be copied back: 's' is a socket"),
        ("failed", None, "its outputs could not be copied back: 's' is a socket"),
    ],
)
def test_what_a_pause_did_not_keep_is_a_warning(outcome: str, manifest: str | None, warning: str) -> None:
    job = a_job().started().ask(i.Pause).exited(0, stop_recorded=True).released()
    job.copied_back(outcome, manifest=manifest, message="'s' is a socket")
    assert (job.state, job.record.warnings) == (State.PAUSED, (warning,))


class TestWorkstation:
    """The same job; its phase is a word beside the state."""

    def test_its_phases(self) -> None:
        job = a_job(kind="workstation")
        assert job.record.phase is None
        assert job.started().record.phase is Phase.ACTIVE
        assert job.ask(i.Pause).record.phase is Phase.SUSPENDING
        job.exited(None, signal=15, stop_recorded=True).sealed()
        assert job.state is State.PAUSED
        assert str(job.record.phase) == Phase.SUSPENDED
        assert job.ask(i.Resume).record.phase is None

    def test_paused_while_it_waited_it_is_suspended_too(self) -> None:
        assert a_job(kind="workstation").ask(i.Pause).record.phase is Phase.SUSPENDED

    def test_stopped_from_paused_it_has_no_phase(self) -> None:
        assert _paused_while_running("workstation").ask(i.Stop).record.phase is None


def test_a_backends_own_suspension_stays_running_with_the_meter_stopped() -> None:
    job = a_job().started().running(suspended_since=at(7))
    assert (job.state, job.record.phase) == (State.RUNNING, Phase.SUSPENDED_BY_BACKEND)
    assert holdings(job.record) == (True, True)
    assert job.running().record.phase is None
