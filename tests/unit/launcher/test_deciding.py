"""What a record asks of the launcher, given its rows."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.launcher.domain import Decision, Launch, State, decide
from shared.lifecycle.facts import Accepted, InputValid, SegmentKey
from shared.lifecycle.states import State as JobState
from tests.integration.launcher.story import Job

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


def decision(job: Job, *rows: Launch) -> Decision:
    """What the job's newest record means for these rows."""
    by_attempt = {row.attempt: row for row in rows}
    return decide(job.record, by_attempt, deployment="tidegate", default_grace=10, now=NOW)


def staged() -> Job:
    """A job whose launch is owed."""
    job = Job("true")
    job.staged()
    return job


def begun(job: Job) -> Launch:
    """The row that its launch begins with."""
    (row,) = decision(job).begun
    return row


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
