"""After a restore a record is older than the world: what others saw is adopted, and what cannot be known is said."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance, reset
from shared.lifecycle.derive import ADOPTED
from shared.lifecycle.duties import holdings
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord, PipelineRef
from shared.lifecycle.states import Desired, StageStatus, State
from shared.lifecycle.table import EVIDENCE_KINDS
from tests.unit.lifecycle.histories import Seeded, between_decisions, in_batches, shuffled, without_seq, worlds
from tests.unit.lifecycle.jobs import a_job, a_job_that, at, segment
from tests.unit.lifecycle.world import World

ALL_BUT_SUCCEEDED: Final = [state for state in State if state is not State.SUCCEEDED]


@pytest.mark.parametrize("state", ALL_BUT_SUCCEEDED)
def test_evidence_of_a_higher_attempt_is_adopted_as_current(state: State) -> None:
    job = a_job_that(state).running(segment(submission="s2", created=6), attempt=2)
    assert job.last.what == "applied"
    assert (job.state, job.record.attempt) == (State.RUNNING, 2)
    assert job.events[-1] == "running"
    assert (job.record.current.admission, job.record.desired_state) == (ADOPTED, Desired.RUN)
    assert holdings(job.record) == (True, True)
    before = job.record.attempts[0]
    assert (before.number, before.sealed) == (1, True)
    assert job.record.stages[0].status is StageStatus.PASSED


def test_a_job_that_succeeded_has_no_higher_attempt() -> None:
    job = a_job_that(State.SUCCEEDED)
    before = job.record
    job.running(attempt=2)
    assert job.last.what == "refused"
    assert job.record is before


def test_a_deleted_job_has_no_higher_attempt() -> None:
    job = a_job_that(State.FAILED).tell(f.GpusFreed).ask(i.Delete)
    assert job.running(attempt=2).last.what == "refused"


def test_how_the_attempt_before_ended_is_not_invented() -> None:
    job = a_job_that(State.RUNNING).running(segment(submission="s2", created=6), attempt=2)
    (before, _) = job.record.attempts
    assert before.end_reason is None
    assert before.message == "how it ended is not known: the database was restored from a backup"
    assert [one.ended for one in before.segments] == ["lost"], "nothing of a sealed attempt counts on"
    job.exited(0, attempt=1)
    assert [one.ended for one in job.record.attempts[0].segments] == ["exited"], "its end came late"
    assert job.state is State.RUNNING


def test_an_attempt_that_ended_keeps_its_end() -> None:
    job = a_job_that(State.FAILED).running(segment(submission="s2", created=6), attempt=2)
    assert job.record.attempts[0].message == "the command exited with code 3"
    assert (job.record.end_reason, job.record.message, job.record.finished_at) == (None, None, None)


def test_attempts_that_were_skipped_are_open_to_late_evidence() -> None:
    job = a_job_that(State.RUNNING).running(segment(submission="s3", created=9), attempt=3)
    assert [attempt.number for attempt in job.record.attempts] == [1, 2, 3]
    job.exited(3, segment(submission="s2", created=6), attempt=2)
    assert [one.ended for one in job.record.attempts[1].segments] == ["exited"]
    assert (job.state, job.record.attempt) == (State.RUNNING, 3)


def test_a_number_far_ahead_costs_no_more_than_the_next() -> None:
    job = a_job_that(State.RUNNING).running(segment(submission="s9", created=9), attempt=2_000_000_000)
    assert job.record.attempt == 2_000_000_000
    assert len(job.record.attempts) <= 5


def test_what_was_let_through_has_no_hold_and_no_step_before_it_to_wait_for() -> None:
    step = PipelineRef(id="p01", step="eval", index=1)
    job = a_job(pipeline=step).ask(i.Hold, reason="by hand").running()
    assert job.record.pipeline is not None
    assert (job.record.hold, job.record.pipeline.upstream_done) == (None, True)


def test_the_evidence_of_a_higher_attempt_commutes() -> None:
    def told(order: tuple[int, ...]) -> JobRecord:
        job = a_job_that(State.FAILED)
        facts = (
            job.fact(f.InputValid, attempt=2, at=at(20)),
            job.fact(f.SeenRunning, attempt=2, at=at(22), segment=segment(), raw_state="running", started_at=at(21)),
            job.fact(f.GpusFreed, attempt=2, at=at(24)),
        )
        return without_seq(job.take(*(facts[place] for place in order)).record)

    assert told((0, 1, 2)) == told((2, 0, 1)) == told((1, 2, 0))


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(0, 2**32 - 1))
def test_a_record_that_was_taken_back_catches_up_with_the_evidence(world: World, seed: int) -> None:
    """Taken back to any moment, a record that hears the evidence of the lost time again, in any order between two
    decisions and cut into any batches, is at the newest attempt that anybody worked on."""
    if not world.log:
        return
    choices = Seeded(seed)
    lost = world.log[choices.pick(range(len(world.log))) :]
    backup = lost[0].before
    record = reset(backup, i.Reset(epoch=2, backup_at=at(0))).record
    for run in between_decisions(lost):
        evidence = [entry.item for entry in run if entry.item.kind in EVIDENCE_KINDS]
        for batch in in_batches(choices, shuffled(choices, evidence)):
            record = advance(record, batch, world.now).record
    verdicts = [entry.item for entry in lost if entry.item.kind in EVIDENCE_KINDS]
    for item in verdicts:
        before = record
        record = advance(record, [item], world.now).record
        if before.state is State.SUCCEEDED:
            assert record.attempt == before.attempt
    if record.state is not State.SUCCEEDED and not record.deleted:
        assert record.attempt >= max((item.attempt for item in verdicts if isinstance(item, f.FactBase)), default=0)
    assert record.epoch == 2
    assert all(attempt.sealed for attempt in record.attempts[:-1])
    numbers = [attempt.number for attempt in record.attempts]
    assert numbers == sorted(set(numbers))
    assert JobRecord.model_validate_json(record.model_dump_json(exclude_none=True)) == record


def test_a_stop_of_the_lost_time_is_no_failure_and_is_not_tried_again() -> None:
    job = a_job(retries=1).started()
    job.record = reset(job.record, i.Reset(epoch=2, backup_at=at(0))).record
    job.exited(None, signal=15, stop_recorded=True).sealed()
    assert (job.state, job.end) == (State.STOPPED, EndReason.STOPPED_BY_USER)
    assert job.record.message is not None
    assert job.record.message.endswith("it was taken back by a restore")


@pytest.mark.parametrize("state", list(State))
def test_a_reset_changes_nothing_but_the_version(state: State) -> None:
    record = a_job_that(state).record
    told = reset(record, i.Reset(epoch=2))
    assert told.event == "reset"
    assert told.record == record.model_copy(update={"epoch": 2, "seq": record.seq + 1})


def test_a_reset_of_a_record_that_may_have_been_taken_back_says_so_once() -> None:
    record = a_job(warnings=("given at submit",)).started().record
    for epoch in (2, 3):
        record = reset(record, i.Reset(epoch=epoch, backup_at=at(0))).record
    assert record.warnings == (
        "given at submit",
        "the database was restored from a backup of 2026-11-30 09:00:00 UTC: what was asked of this job after that, "
        "and left no trace elsewhere, is not known",
    )
    assert record.warnings == record.submit_warnings, "so that what is derived later keeps it"
