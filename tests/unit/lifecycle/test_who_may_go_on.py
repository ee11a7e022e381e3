"""Whose pause it is decides who may go on: a user's, a policy's and an admin's are told apart, and none gets round an
admin's."""

from typing import Any

import pytest

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.actions import actions
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import Desired, State
from tests.unit.lifecycle.jobs import Job, a_job, at

STOPPED: dict[str, Any] = {"code": None, "signal": 15, "stop_recorded": True}
BY_ADMIN: dict[str, Any] = {"actor": "root", "by_admin": True, "reason": "maintenance"}


def _running(**given: Any) -> Job:
    return a_job(**given).started()


def _is_held_by_the_admin(job: Job) -> bool:
    mark = job.record.hold
    return mark is not None and (mark.by_admin, mark.actor, mark.reason) == (True, "root", "maintenance")


def test_a_pause_says_whose_it_is_and_why() -> None:
    user = _running().ask(i.Pause, reason="the data are wrong").exited(**STOPPED).sealed()
    policy = _running().tell(f.PolicyPause, policy="window", reason="closed", at=at(6)).exited(**STOPPED).sealed()
    admin = _running().ask(i.Pause, **BY_ADMIN).exited(**STOPPED).sealed()
    assert [job.end for job in (user, policy, admin)] == [
        EndReason.PAUSED_BY_USER,
        EndReason.PAUSED_BY_POLICY,
        EndReason.PAUSED_BY_ADMIN,
    ]
    assert user.record.message == "paused: by rin at 2026-11-30 09:00:15 UTC (the data are wrong)"
    assert policy.record.message == "paused: by policy window (closed) at 2026-11-30 09:00:06 UTC"
    assert admin.record.message == (
        "paused until an admin resumes it: by root at 2026-11-30 09:00:15 UTC (maintenance)"
    )


@pytest.mark.parametrize("build", [lambda: a_job(), lambda: _running()], ids=["while it waits", "while it runs"])
def test_what_an_admin_paused_only_an_admin_resumes(build: Any) -> None:
    job = build().ask(i.Pause, **BY_ADMIN)
    if job.state is State.RUNNING:
        job.exited(**STOPPED).sealed()
    assert job.ask(i.Resume).why == "an admin paused it (maintenance): only an admin can resume it"
    assert actions(job.record, at(60))["resume"].why_not == job.why
    assert actions(job.record, at(60), by_admin=True)["resume"].allowed
    assert job.ask(i.Resume, by_admin=True).state is State.QUEUED
    assert job.record.hold is None


def test_an_admins_pause_takes_the_place_of_a_users_while_it_is_pausing() -> None:
    job = _running().ask(i.Pause).ask(i.Pause, **BY_ADMIN)
    assert (job.events[-1], job.last.what) == ("desired", "applied")
    assert job.ask(i.Pause).why == "it is being paused already"
    assert job.exited(**STOPPED).sealed().end is EndReason.PAUSED_BY_ADMIN


def test_an_admins_pause_takes_the_place_of_a_users_once_it_is_paused() -> None:
    job = a_job().ask(i.Pause).ask(i.Pause, **BY_ADMIN)
    assert (job.state, job.end, job.events[-1]) == (State.PAUSED, EndReason.PAUSED_BY_ADMIN, "desired")
    assert job.record.current.end_reason is EndReason.PAUSED_BY_USER, "how the attempt ended stays what it was"
    assert job.ask(i.Pause, **BY_ADMIN).why == "it is paused already"
    assert job.ask(i.Resume).last.what == "refused"


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda job: job.exited(**STOPPED).sealed().ask(i.Stop), id="stopped once it was paused"),
        pytest.param(lambda job: job.ask(i.Stop).exited(**STOPPED).sealed(), id="stopped while it was pausing"),
        pytest.param(lambda job: job.exited(3).sealed(), id="it failed by itself before that"),
    ],
)
def test_a_retry_does_not_get_round_an_admins_pause(build: Any) -> None:
    job = build(_running(retries=1).ask(i.Pause, **BY_ADMIN)).ask(i.Retry)
    assert (job.state, job.record.attempt) == (State.QUEUED, 2)
    assert _is_held_by_the_admin(job)
    assert job.admitted(2).why == "root holds it"
    assert job.ask(i.Release).why == "an admin holds it (maintenance): only an admin can release it"


def test_an_admins_hold_outlives_a_pause_and_a_stop() -> None:
    job = a_job().ask(i.Hold, actor="root", reason="maintenance", by_admin=True)
    assert _is_held_by_the_admin(job.ask(i.Pause).ask(i.Resume))
    assert _is_held_by_the_admin(job.ask(i.Stop).ask(i.Retry))


def test_a_users_hold_outlives_a_pause_and_ends_with_a_stop() -> None:
    job = a_job().ask(i.Hold, reason="mine").ask(i.Pause).ask(i.Resume)
    assert job.record.hold is not None
    assert job.ask(i.Stop).ask(i.Retry).record.hold is None


def test_a_policys_stop_is_told_apart_from_a_users() -> None:
    job = _running().tell(f.PolicyStop, policy="budget", reason="spent", at=at(6)).exited(**STOPPED).sealed()
    assert (job.end, job.record.message) == (
        EndReason.STOPPED_BY_POLICY,
        "stopped: by policy budget (spent) at 2026-11-30 09:00:06 UTC",
    )


@pytest.mark.parametrize("stop_recorded", [True, None], ids=["the stop was recorded", "nobody can tell"])
def test_a_stop_after_a_pause_stops_and_a_pause_after_a_stop_is_refused(stop_recorded: bool | None) -> None:
    end = STOPPED | {"stop_recorded": stop_recorded}
    assert _running().ask(i.Pause).ask(i.Stop).exited(**end).sealed().end is EndReason.STOPPED_BY_USER
    job = _running().ask(i.Stop).ask(i.Pause)
    assert (job.why, job.record.desired_state) == ("it is being stopped", Desired.STOPPED)
    assert job.exited(**end).sealed().end is EndReason.STOPPED_BY_USER


def test_a_stop_while_a_pauses_outputs_are_copied_back_stops() -> None:
    job = _running().ask(i.Pause).exited(**STOPPED).ask(i.Stop).sealed()
    assert (job.state, job.end) == (State.STOPPED, EndReason.STOPPED_BY_USER)


def test_retries_by_hand_have_a_bound() -> None:
    job = a_job(by_hand=2)
    for _ in range(3):
        job.ask(i.Stop).ask(i.Retry)
    assert job.why == "its budget of 2 retries by hand is spent: submit it again"
    assert actions(job.record, at(60))["retry"].why_not == job.why
    assert (job.record.retries.by_hand, job.record.retries.count, job.record.attempt) == (2, 2, 3)
