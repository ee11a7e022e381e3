"""Rule 10: GPU time is wall time x GPUs between the backend's own start and end, in integer milliseconds."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import Segment
from shared.lifecycle.states import State
from shared.lifecycle.usage import gpu_milliseconds
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment
from tests.unit.lifecycle.world import World

HOUR = 3600
HOUR_MS = 3_600_000


def _only(job: Job) -> Segment:
    (one,) = job.record.current.segments
    return one


def test_gpu_time() -> None:
    job = a_job(gpus=8).started().exited(0, started_at=at(4), ended_at=at(5.5)).sealed()
    assert _only(job).gpu_milliseconds == 8 * 1500
    assert gpu_milliseconds(job.record, at(10 * HOUR)) == 8 * 1500


def test_the_running_segment_counts_up_to_now() -> None:
    job = a_job(gpus=2).started()
    assert _only(job).gpu_milliseconds is None
    assert gpu_milliseconds(job.record, at(4 + HOUR)) == 2 * HOUR_MS


def test_waiting_is_not_counted() -> None:
    job = a_job().admitted().staged().accepted().tell(f.SeenPending, segment=segment(), raw_state="PENDING")
    assert gpu_milliseconds(job.record, at(HOUR)) == 0


def test_a_job_without_gpus_counts_none() -> None:
    assert _only(a_job(gpus=0).started().exited(0).sealed()).gpu_milliseconds == 0


CLOCKS: dict[str, tuple[float, float]] = {
    "start and end from two hosts, the end first": (20 * 60 + 10, 14 * 60 + 55),
    "it ended a second before it started": (5, 4),
    "it starts in our future": (10_000, 9_999),
}


@pytest.mark.parametrize(("started", "ended"), [pytest.param(*case, id=name) for name, case in CLOCKS.items()])
def test_clocks_that_disagree_never_give_a_negative_time(started: float, ended: float) -> None:
    job = a_job().admitted().staged().exited(0, started_at=at(started), ended_at=at(ended)).sealed()
    one = _only(job)
    assert one.gpu_milliseconds == 0
    assert (one.started_at, one.ended_at) == (at(started), at(ended)), "the raw values stay"
    assert job.state is State.SUCCEEDED


def test_no_stage_ends_before_it_began_when_clocks_disagree() -> None:
    job = a_job().started().exited(0, started_at=at(-50), ended_at=at(-100)).sealed()
    for stage in job.record.stages:
        assert stage.started_at is not None
        assert stage.ended_at is not None
        assert stage.started_at <= stage.ended_at


def test_a_start_in_our_future_counts_nothing_yet() -> None:
    assert gpu_milliseconds(a_job().started().record, at(1)) == 0


SUSPENDED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "run 1 h, suspended 2 h, run half an hour": (
        {"suspended_ms": 2 * HOUR_MS},
        {"ended_at": at(3.5 * HOUR), "suspended_ms": 2 * HOUR_MS},
        3 * HOUR_MS,
    ),
    "the end does not say that it was suspended": (
        {"suspended_ms": 2 * HOUR_MS},
        {"ended_at": at(3.5 * HOUR)},
        3 * HOUR_MS,
    ),
    "suspended, then deleted": ({"suspended_since": at(HOUR)}, {"ended_at": at(3 * HOUR)}, 2 * HOUR_MS),
}


@pytest.mark.parametrize(
    ("seen", "ended", "counted"), [pytest.param(*case, id=name) for name, case in SUSPENDED.items()]
)
def test_suspended_time_is_excluded(seen: dict[str, Any], ended: dict[str, Any], counted: int) -> None:
    job = a_job(gpus=2).admitted().staged().accepted().running(started=0, **seen)
    assert _only(job.exited(0, **({"started_at": at(0)} | ended)).sealed()).gpu_milliseconds == counted


def test_while_suspended_the_meter_stands_still() -> None:
    job = a_job(gpus=2).admitted().staged().accepted().running(started=0, suspended_since=at(HOUR))
    assert gpu_milliseconds(job.record, at(2 * HOUR)) == gpu_milliseconds(job.record, at(9 * HOUR)) == 2 * HOUR_MS


def test_an_unseen_end_counts_to_the_last_confirmed_sighting_and_is_estimated() -> None:
    job = a_job(gpus=1).admitted().staged().accepted().running(started=0, at=at(300))
    job.now = 200_000
    job.tell(f.Lost, last_seen_at=at(305)).sealed(outcome="none")
    one = _only(job)
    assert (one.gpu_milliseconds, one.estimated, one.billable, one.ended) == (305_000, True, False, "lost")


def test_an_unseen_end_of_a_suspended_one_counts_to_the_suspension() -> None:
    job = a_job(gpus=1).admitted().staged().accepted().running(started=0, at=at(900), suspended_since=at(60))
    assert _only(job.tell(f.Lost, last_seen_at=at(1000))).gpu_milliseconds == 60_000


def test_a_later_segment_ends_an_earlier_one_whose_end_nobody_saw() -> None:
    job = a_job(gpus=1, infrastructure=5).admitted().staged().accepted().running(started=0, at=at(60))
    job.running(segment(1, created=100), started=110)
    first, second = job.record.current.segments
    assert (first.gpu_milliseconds, first.estimated, first.billable) == (60_000, True, False)
    assert second.ended is None


def test_each_segment_counts_by_itself() -> None:
    job = a_job(gpus=2, infrastructure=5).started().requeued(ended=6)
    job.exited(0, segment(1, created=7), started_at=at(8), ended_at=at(9)).sealed()
    assert [(one.gpu_milliseconds, one.billable) for one in job.record.current.segments] == [
        (4_000, False),
        (2_000, True),
    ]
    assert gpu_milliseconds(job.record, at(100)) == 6_000


@pytest.mark.parametrize(
    "reason",
    [EndReason.PREEMPTED, EndReason.NODE_LOST, EndReason.OUT_OF_MEMORY, EndReason.TIME_LIMIT, EndReason.LOST],
)
def test_a_segment_is_billed_as_its_end_reason_says(reason: EndReason) -> None:
    one = _only(a_job().started().exited(None, signal=9, reason=reason))
    assert one.billable == REASONS[reason].billable
    assert one.gpu_milliseconds == 10_000, "recorded in any case"


def test_a_stopped_run_is_billed() -> None:
    assert _only(a_job().started().ask(i.Stop).exited(None, signal=15, stop_recorded=True).sealed()).billable


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_gpu_time_is_never_negative_and_never_falls_with_time(world: World) -> None:
    for entry in world.log:
        for attempt in entry.after.attempts:
            for one in attempt.segments:
                assert one.gpu_milliseconds is None or one.gpu_milliseconds >= 0
        now, later = entry.now, entry.now + timedelta(seconds=5)
        assert 0 <= gpu_milliseconds(entry.after, now) <= gpu_milliseconds(entry.after, later)
