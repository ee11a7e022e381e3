"""What a record asks of the launcher, given its rows."""

from dataclasses import replace
from datetime import UTC, datetime
from signal import SIGTERM, SIGUSR1
from typing import Any

import pytest

from services.launcher.domain import Decision, Ending, Graces, Launch, State, decide, end
from shared.lifecycle.facts import Accepted, GpusFreed, InputValid, LauncherSealed, SegmentKey
from shared.lifecycle.states import State as JobState
from tests.integration.launcher.story import Job
from tests.unit.launcher.rows import ROW

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


def decision(job: Job, *rows: Launch) -> Decision:
    """What the job's newest record means for these rows."""
    by_attempt = {row.attempt: row for row in rows}
    return decide(
        job.record, by_attempt, deployment="tidegate", graces=Graces(stop_seconds=10, checkpoint_seconds=60), now=NOW
    )


def staged(**spec: Any) -> Job:
    """A job whose launch is owed."""
    job = Job("true", **spec)
    job.staged()
    return job


def begun(job: Job) -> Launch:
    """The row that its launch begins with."""
    (row,) = decision(job).begun
    return row


def pausing(**spec: Any) -> tuple[Job, Launch]:
    """A job that somebody pauses, and the row that its launch began with."""
    job = staged(**spec)
    row = begun(job)
    job.pause()
    return job, row


def after(job: Job, row: Launch, **changes: Any) -> Launch:
    """The row that the job's newest record makes of this one, changed first."""
    (changed,) = decision(job, replace(row, **changes)).changed
    return changed


def test_nothing_is_owed_before_the_inputs_are_staged() -> None:
    assert decision(Job("true")) == Decision()


def test_staged_inputs_begin_an_intent_under_a_name_that_never_varies() -> None:
    job = staged()
    row = begun(job)
    assert row == begun(job)
    assert (row.state, row.submission) == (State.INTENT, f"tidegate.{job.id}.a1.s1")
    assert row.directory == job.directory


def test_a_stop_before_anything_was_begun_begins_with_the_end() -> None:
    job = staged()
    job.stop()
    assert begun(job).state is State.REVOKING


@pytest.mark.parametrize("state", [State.INTENT, State.SUBMITTING, State.SUBMITTED, State.REVOKING])
def test_a_stop_ends_a_launch_in_any_state_and_takes_the_lease_away(state: State) -> None:
    job = staged()
    row = begun(job)
    job.stop()
    ended = after(job, row, state=state, token="t", deadline=NOW)
    assert (ended.state, ended.token, ended.deadline) == (State.REVOKING, None, None)


def test_the_grace_is_the_persons_own_else_the_deployments_and_none_with_force() -> None:
    for how, grace in (({}, 10), ({"grace_seconds": 3}, 3), ({"force": True, "grace_seconds": 3}, 0)):
        job = staged()
        row = begun(job)
        job.stop(**how)
        assert after(job, row, state=State.SUBMITTED).grace_seconds == grace


def test_the_jobs_own_grace_goes_before_the_deployments() -> None:
    for how, grace in (({}, 25), ({"grace_seconds": 3}, 3)):
        job = staged(stop_grace_seconds=25)
        row = begun(job)
        job.stop(**how)
        assert after(job, row, state=State.SUBMITTED).grace_seconds == grace


@pytest.mark.parametrize(
    ("spec", "number", "grace"),
    [
        pytest.param({}, SIGTERM, 60, id="the deployment's grace"),
        pytest.param({"checkpoint_signal": "USR1", "checkpoint_grace_seconds": 90}, SIGUSR1, 90, id="the job's own"),
        pytest.param({"stop_grace_seconds": 5}, SIGTERM, 60, id="its grace of a stop is another"),
    ],
)
def test_a_pause_asks_with_the_checkpoint_signal_and_its_grace(spec: dict[str, Any], number: int, grace: float) -> None:
    paused = after(*pausing(**spec), state=State.SUBMITTED)
    assert (paused.stop_signal, paused.grace_seconds, paused.pausing) == (number, grace, True)


@pytest.mark.parametrize("grace", [3, 3600])
def test_a_stop_after_a_pause_is_asked_for_anew_with_its_own_grace(grace: int) -> None:
    job, row = pausing(checkpoint_signal="USR1")
    asked = replace(after(job, row, state=State.SUBMITTED), stop_asked_at=NOW, stop_asked_grace=60.0)
    job.stop(grace_seconds=grace)
    stopped = after(job, asked)
    assert (stopped.stop_signal, stopped.grace_seconds, stopped.pausing) == (SIGTERM, grace, False)
    assert (stopped.stop_asked_at, stopped.stop_asked_grace) == (None, None)


def test_a_pause_after_a_stop_changes_nothing_whatever_its_grace() -> None:
    stopped = replace(ROW, grace_seconds=600.0, stop_signal=SIGTERM)
    assert end(stopped, Ending(1, SIGUSR1, pausing=True), NOW).grace_seconds == 600
    assert end(stopped, Ending(1, SIGUSR1, pausing=True), NOW).stop_signal == SIGTERM


def test_only_a_resumed_attempt_is_told_so() -> None:
    job, row = pausing()
    assert not row.resumed
    job.apply(GpusFreed(**job.head("launcher")), LauncherSealed(**job.head("launcher"), ran=False))
    assert job.record.state is JobState.PAUSED
    job.resume()
    job.staged()
    assert begun(job).resumed


def test_a_workstation_has_what_its_earlier_attempts_left_of_its_lifetime() -> None:
    job = Job("true", kind="workstation", time_limit_seconds=3600)
    job.staged()
    attempt = job.record.current.model_copy(update={"up_before_ms": 3_000_000})
    job.record = job.record.model_copy(update={"attempts": (attempt,)})
    row = begun(job)
    assert (row.time_limit_seconds, row.workstation) == (600, True)


def test_a_longer_grace_does_not_take_back_a_shorter_one() -> None:
    job = staged()
    row = begun(job)
    job.stop(grace_seconds=60)
    assert after(job, row, state=State.REVOKING, grace_seconds=0.0).grace_seconds == 0


def test_an_exit_ends_the_launch_and_lets_the_records_go() -> None:
    job = staged()
    row = begun(job)
    job.exited(row.submission)
    ended = after(job, row, state=State.SUBMITTED)
    assert (ended.state, ended.grace_seconds, ended.witnessed) == (State.REVOKING, 0, True)


def test_an_equal_version_is_a_question_and_a_lower_one_is_dropped() -> None:
    job = staged()
    row = begun(job)
    assert decision(job, row) == Decision(answered=(row,))
    assert decision(job, replace(row, seq=row.seq + 1)) == Decision()


def test_a_version_that_asks_nothing_is_not_written() -> None:
    job = staged()
    row = replace(begun(job), state=State.SUBMITTED)
    at = job.record.submitted_at
    job.apply(
        Accepted(
            **job.head("launcher"),
            segment=SegmentKey(submission=row.submission, created_at=at),
            backend="local",
            cluster="local",
            ref=row.submission,
        )
    )
    assert decision(job, row) == Decision()
    job.exited(row.submission)
    assert decision(job, row).changed


def test_a_newer_version_that_still_owes_the_launch_is_written_so_that_it_can_be_asked_about() -> None:
    job = staged()
    row = replace(begun(job), state=State.SUBMITTED)
    job.apply(InputValid(**job.head("stager")))
    (noted,) = decision(job, row).changed
    assert (noted.state, noted.seq) == (State.SUBMITTED, job.record.seq)
    assert decision(job, noted).answered


def test_after_a_restore_the_newest_facts_are_told_again() -> None:
    job = staged()
    row = begun(job)
    job.record = job.record.model_copy(update={"epoch": 2})
    assert decision(job, replace(row, state=State.SUBMITTED)).answered


def test_a_sealed_row_stays_sealed_whatever_comes() -> None:
    job = staged()
    row = begun(job)
    job.stop()
    assert after(job, row, state=State.SEALED, sealed_n=1).state is State.SEALED


def test_a_newer_attempt_ends_an_older_one_at_once_even_before_its_own_launch_is_owed() -> None:
    job = staged()
    row = begun(job)
    job.record = job.record.model_copy(update={"state": JobState.FAILED})
    job.retry()
    (old,) = decision(job, replace(row, state=State.SUBMITTED)).changed
    assert (old.attempt, old.state, old.grace_seconds) == (1, State.REVOKING, 0)


def test_a_record_that_is_over_ends_what_was_never_sealed() -> None:
    job = staged()
    row = begun(job)
    job.record = job.record.model_copy(update={"state": JobState.STOPPED, "seq": 99})
    assert after(job, row, state=State.SUBMITTED).state is State.REVOKING


def test_a_job_that_ended_before_staging_leaves_no_row() -> None:
    job = Job("true")
    job.stop()
    assert decision(job) == Decision()
