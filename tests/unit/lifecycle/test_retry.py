"""Rule 8: retry, by hand and by itself within two budgets."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.actions import ACTIONS, actions
from shared.lifecycle.finish import spend
from shared.lifecycle.reasons import REASONS, EndReason, RetryClass
from shared.lifecycle.record import PipelineRef, Retries
from shared.lifecycle.states import ACTIVE, State
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that, at, segment

PREEMPTED = {"code": None, "signal": 15, "reason": EndReason.PREEMPTED}
EXIT_1 = {"code": 1}


def _runs(job: Job, endings: list[dict[str, Any]]) -> list[EndReason | None]:
    """Let attempts run, each with the next ending, until one is final; the attempts' end reasons."""
    for ending in endings:
        if job.state is not State.QUEUED:
            break
        job.admitted(job.record.attempt).staged().accepted().running().exited(**ending).sealed(outcome="none")
    return [attempt.end_reason for attempt in job.record.attempts if attempt.sealed]


def test_retry() -> None:
    job = a_job_that(State.FAILED).ask(i.Retry)
    assert (job.state, job.record.attempt, job.events[-1]) == (State.QUEUED, 2, "queued")
    assert (job.record.end_reason, job.record.message, job.record.hint) == (None, None, None)
    assert job.record.current.cooldown_until is None, "a person does not wait"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_limit_of_n_means_n_plus_one_attempts(limit: int) -> None:
    """Case F1: one place decides."""
    job = a_job(retries=limit)
    assert _runs(job, [EXIT_1] * 10) == [EndReason.EXIT_NONZERO] * (limit + 1)
    assert (job.state, job.record.retries.used) == (State.FAILED, limit)
    assert job.record.retries.cooldown_until is None, "nothing is waited for any more"


@pytest.mark.parametrize("limit", [-1, "three", 1.5])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    """Case F1; the front door says the same of `retries` (tests/contract/test_spec.py)."""
    with pytest.raises(ValidationError, match="budget"):
        Retries.model_validate({"budget": limit})


def test_preemption_does_not_eat_the_users_retries() -> None:
    """Case F2, with its endings; tests/scenarios plays it with every event."""
    job = a_job(retries=1, infrastructure=5)
    _runs(job, [PREEMPTED, PREEMPTED, EXIT_1, EXIT_1])
    assert (job.state, job.record.attempt) == (State.FAILED, 4)
    assert (job.record.retries.used, job.record.retries.infrastructure_used) == (1, 2)


def test_fifty_preemptions_stop_at_a_bound_of_their_own() -> None:
    job = a_job(retries=1, infrastructure=5)
    assert len(_runs(job, [PREEMPTED] * 50)) == 6, "case F2: one attempt and five restarts"
    assert (job.state, job.end, job.record.retries.used) == (State.FAILED, EndReason.PREEMPTED, 0)


def test_requeues_and_preemptions_draw_on_one_budget() -> None:
    job = a_job(infrastructure=2).started().requeued().running(segment(1, created=7), started=8)
    job.exited(None, segment(1, created=7), signal=15, reason=EndReason.PREEMPTED).sealed(outcome="none")
    assert (job.state, job.record.retries.infrastructure_used) == (State.QUEUED, 2)
    assert _runs(job, [PREEMPTED]) == [EndReason.PREEMPTED] * 2
    assert job.state is State.FAILED


@pytest.mark.parametrize("reason", [reason for reason, row in REASONS.items() if row.state is State.FAILED])
def test_each_failure_draws_on_the_budget_of_its_class(reason: EndReason) -> None:
    kind = REASONS[reason].retry
    after = spend(Retries(budget=1, infrastructure_budget=1), kind, at(0))
    if kind is RetryClass.NONE:
        assert after is None
    else:
        assert after is not None
        assert (after.used, after.infrastructure_used) == ((1, 0) if kind is RetryClass.USER else (0, 1))


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda job: job.admitted().tell(f.StagingFailed, message="full"), id="not staged"),
        pytest.param(lambda job: job.admitted().staged().accepted().tell(f.Lost), id="lost before it ran"),
        pytest.param(
            lambda job: job.admitted().staged().accepted().exited(1, started_at=None), id="ended before it ran"
        ),
        pytest.param(lambda job: job.admitted().staged().tell(f.LaunchRefused, message="no"), id="refused"),
    ],
)
def test_only_an_attempt_that_reached_running_is_retried_by_itself(build: Any) -> None:
    job = build(a_job(retries=3, infrastructure=3))
    job.released(ran=False).copied_back("none")
    assert (job.state, job.record.attempt) == (State.FAILED, 1)


def test_a_configuration_error_is_tried_once() -> None:
    """Case F1, partition `nosuch`: one attempt, whatever the limit."""
    job = a_job(retries=3, infrastructure=3).admitted().staged()
    job.tell(f.LaunchRefused, reason=EndReason.CONFIGURATION, message="no partition nosuch").sealed(
        ran=False, outcome="none"
    )
    assert (job.end, job.record.attempt) == (EndReason.CONFIGURATION, 1)


def test_an_automatic_retry_waits_longer_each_time_and_failed_is_never_shown() -> None:
    job = a_job(retries=8)
    waits = []
    for _ in range(8):
        _runs(job, [EXIT_1])
        cooldown = job.record.current.cooldown_until
        assert cooldown is not None
        waits.append((cooldown - job.record.current.queued_at) // timedelta(seconds=1))
    assert waits == [15, 30, 60, 120, 240, 480, 600, 600]
    assert "failed" not in job.events
    assert job.record.message == "attempt 8: the command exited with code 1; it is tried again"


def test_a_retry_by_hand_is_outside_the_budgets() -> None:
    job = a_job(retries=1)
    _runs(job, [EXIT_1, EXIT_1])
    job.ask(i.Retry)
    assert (job.record.retries.used, job.record.attempt) == (1, 3)


def test_a_retry_of_a_step_that_was_not_reached_waits_for_the_steps_before_it() -> None:
    job = a_job(pipeline=PipelineRef(id="p1", step="test", index=1)).ask(i.UpstreamFailed, step="train")
    assert (job.state, job.end) == (State.STOPPED, EndReason.UPSTREAM_FAILED)
    assert job.record.message == "a step before it did not succeed: step train"
    assert job.ask(i.Retry).why == "the steps before it have not succeeded: retry its pipeline p1"
    job.ask(i.Retry, with_pipeline=True).admitted(1)
    assert job.why == "the steps before it have not succeeded"


NOT_ALLOWED = {
    (State.QUEUED, "resume"): "it is not paused: it waits at a gate and goes on once that is open",
    (State.QUEUED, "release"): "nothing holds it",
    (State.RUNNING, "retry"): "it has not ended: it is running",
    (State.RUNNING, "hold"): "it was let through already: pause it instead",
    (State.PENDING, "delete"): "it has not ended: it is waiting at the backend; stop it first",
    (State.PAUSED, "retry"): "it is paused: resume it instead",
    (State.PAUSED, "pause"): "it is paused already",
    (State.SUCCEEDED, "retry"): "it succeeded already: submit it again to run it again",
    (State.FAILED, "resume"): "it failed already: only a paused job can be resumed",
    (State.FAILED, "recopy"): "only outputs whose copying back failed can be copied again",
    (State.STOPPED, "stop"): "it is stopped already",
}
ALLOWED = {
    State.QUEUED: {"stop", "pause", "hold"},
    **{state: {"stop", "pause"} for state in ACTIVE},
    State.PAUSED: {"stop", "resume"},
    State.SUCCEEDED: {"delete"},
    State.FAILED: {"retry", "delete"},
    State.STOPPED: {"retry", "delete"},
}


@pytest.mark.parametrize("state", list(State))
def test_every_action_is_allowed_or_says_why_not(state: State) -> None:
    answers = actions(a_job_that(state).record, at(60))
    assert tuple(answers) == ACTIONS
    assert {name for name, answer in answers.items() if answer.allowed} == ALLOWED[state]
    for name, answer in answers.items():
        assert (answer.why_not is None) == answer.allowed
        assert answer.why_not == NOT_ALLOWED.get((state, name), answer.why_not)
        assert answer.allowed or (answer.why_not and answer.why_not[0].islower())


def test_an_admins_hold_is_released_by_an_admin_only() -> None:
    record = a_job().ask(i.Hold, reason="maintenance", by_admin=True).record
    assert actions(record, at(60))["release"].why_not == (
        "an admin holds it (maintenance): only an admin can release it"
    )
    assert actions(record, at(60), by_admin=True)["release"].allowed


class TestHold:
    """The `hold` gate, and admissions that crossed a hold."""

    def test_an_admission_that_a_hold_preceded_is_refused_and_told_of(self) -> None:
        job = a_job().ask(i.Hold, reason="wait").admitted(7)
        assert (job.state, job.last.what, job.events[-1]) == (State.QUEUED, "refused", "held")
        assert job.record.admission_refused == 7
        assert job.why == "rin holds it"

    def test_the_refused_admission_told_again_stays_refused_after_the_release(self) -> None:
        job = a_job().ask(i.Hold, reason="wait").admitted(7).ask(i.Release).admitted(7)
        assert (job.state, job.why) == (State.QUEUED, "admission 7 was refused already")
        assert job.events == ["held", "held", "held"], "a refusal told again makes no event"
        assert job.admitted(8).state is State.SUBMITTED
        assert job.record.admission_refused is None

    def test_a_hold_comes_too_late_for_what_was_let_through(self) -> None:
        job = a_job().admitted().ask(i.Hold, reason="wait")
        assert job.why == "it was let through already: pause it instead"

    def test_a_sighting_of_gates_comes_too_late_for_what_was_let_through(self) -> None:
        job = a_job()
        held = job.fact(f.Held, gates=(f.Gate(name="capacity", reason="full", scope="c", lifted_by="time"),))
        assert job.admitted().take(held).last.what == "ignored"
        assert job.record.gate is None

    def test_an_older_sighting_of_gates_does_not_replace_a_newer_one(self) -> None:
        job = a_job()
        gates = [f.Gate(name=name, reason="closed", scope="c", lifted_by="x") for name in ("capacity", "window")]
        old, new = (job.fact(f.Held, gates=(gate,)) for gate in gates)
        job.take(new).take(old)
        assert job.record.gate == gates[1]
        assert job.record.stages[0].waiting_on == "window: closed"

    def test_an_admins_hold_replaces_a_users_never_the_other_way(self) -> None:
        job = a_job().ask(i.Hold, reason="mine").ask(i.Hold, actor="root", reason="theirs", by_admin=True)
        job.ask(i.Hold, reason="mine again")
        assert job.record.hold is not None
        assert (job.record.hold.reason, job.last.what) == ("theirs", "ignored")

    def test_a_step_is_held_until_the_steps_before_it_succeeded(self) -> None:
        job = a_job(pipeline=PipelineRef(id="p1", step="test", index=1)).admitted(1)
        assert (job.why, job.record.admission_refused) == ("the steps before it have not succeeded", 1)
        assert job.ask(i.UpstreamDone).admitted(2).state is State.SUBMITTED


class TestGatesOfItsOwn:
    """What a record shows itself is said at once; the gatekeeper adds the rest."""

    def test_an_automatic_retry_says_why_it_is_queued_again_and_until_when(self) -> None:
        job = a_job(retries=1).started().exited(3).sealed()
        gate, until = job.record.gate, job.record.retries.cooldown_until
        assert until is not None
        assert gate is not None
        assert (gate.name, gate.opens_at, gate.lifted_by) == ("cooldown", until, "time")
        said = f"attempt 1 failed; attempt 2 may start from {until:%Y-%m-%d %H:%M:%S} UTC on"
        assert job.record.stages[0].waiting_on == f"cooldown: {said}"
        assert job.record.message == "attempt 1: the command exited with code 3; it is tried again"

    def test_a_fresh_job_a_resumed_and_a_retried_one_wait_for_the_gatekeeper(self) -> None:
        for job in (a_job(), a_job().ask(i.Pause).ask(i.Resume), a_job().ask(i.Stop).ask(i.Retry)):
            assert (_closed(job), job.record.stages[0].waiting_on) == ([], "the gatekeeper to look at it")

    def test_a_step_waits_for_those_before_it_from_the_first_moment_on(self) -> None:
        job = a_job(pipeline=PipelineRef(id="p1", step="test", index=1))
        assert _closed(job) == ["upstream"]
        assert _closed(job.ask(i.Hold, reason="wait")) == ["hold", "upstream"]
        assert _closed(job.ask(i.UpstreamDone)) == ["hold"]
        assert _closed(job.ask(i.Release)) == []

    def test_a_hold_comes_before_what_the_gatekeeper_said_and_leaves_it_as_it_was(self) -> None:
        job = a_job().tell(f.Held, gates=(f.Gate(name="capacity", reason="full", scope="c", lifted_by="time"),))
        assert _closed(job.ask(i.Hold, reason="wait")) == ["hold", "capacity"]
        assert job.record.stages[0].waiting_on == "hold: held by rin: wait"
        assert _closed(job.ask(i.Release)) == ["capacity"]

    def test_an_admins_hold_is_named_once_the_job_is_tried_again(self) -> None:
        job = a_job().ask(i.Hold, actor="root", reason="audit", by_admin=True).ask(i.Stop).ask(i.Retry)
        assert _closed(job) == ["hold"]


def _closed(job: Job) -> list[str]:
    """The names of the gates that are shown to be closed; the first one is the gate."""
    gates = job.record.closed_gates
    assert job.record.gate == (gates[0] if gates else None)
    return [gate.name for gate in gates]
