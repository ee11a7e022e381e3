"""A workstation's lifetime counts over its attempts; idle, it says when it will be suspended, and may be put off."""

from typing import Any

import pytest

from shared.contracts.events import decode_event, encode_event
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import Workstation
from shared.lifecycle.states import State
from shared.lifecycle.usage import remaining_seconds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment

STOPPED: dict[str, Any] = {"code": None, "signal": 15, "stop_recorded": True}


def a_workstation(*, lifetime: int | None = 100, idle: int | None = 30, **given: Any) -> Job:
    return a_job(kind="workstation", time_limit=lifetime, workstation=Workstation(idle_suspend_seconds=idle), **given)


def _up(job: Job, seconds: float) -> Job:
    """An attempt that is up for so long, until it is paused."""
    job.admitted(job.record.attempt).staged().accepted().running().ask(i.Pause)
    return job.exited(**STOPPED, started_at=at(4), ended_at=at(4 + seconds)).sealed()


class TestLifetime:
    """`--max-lifetime`: the time limit of all attempts together."""

    def test_what_is_left_counts_over_the_attempts(self) -> None:
        job = _up(a_workstation(), 30)
        assert remaining_seconds(job.record) == 70
        job.ask(i.Resume)
        assert remaining_seconds(job.record) == 70
        assert remaining_seconds(_up(job, 30.5).ask(i.Resume).record) == 40, "a second that has begun is still there"

    def test_a_job_event_says_the_same_as_its_record(self) -> None:
        job = _up(a_workstation(infrastructure=9), 30).ask(i.Resume).admitted(2).staged().accepted()
        for n in range(6):
            key = segment(n, created=10 + 3 * n)
            job.running(key, started=11 + 3 * n).requeued(key, started_at=at(11 + 3 * n), ended=12 + 3 * n)
        shown = decode_event(encode_event(job.record, "pending", at(0)).body).job
        assert remaining_seconds(shown) == remaining_seconds(job.record) == 100 - 30 - 6

    def test_it_counts_over_attempts_that_the_record_no_longer_keeps(self) -> None:
        job = a_workstation(lifetime=1000)
        for _ in range(20):
            _up(job, 7).ask(i.Resume)
        assert job.record.earlier is not None
        assert remaining_seconds(job.record) == 1000 - 20 * 7

    def test_a_batch_jobs_limit_begins_anew(self) -> None:
        assert remaining_seconds(_up(a_job(time_limit=100), 30).ask(i.Resume).record) == 100

    def test_time_that_the_backend_suspended_it_is_not_up(self) -> None:
        job = a_workstation().started().ask(i.Pause)
        job.exited(**STOPPED, started_at=at(4), ended_at=at(34), suspended_ms=20_000).sealed()
        assert remaining_seconds(job.record) == 90

    def test_used_up_it_is_neither_resumed_nor_retried(self) -> None:
        job = _up(a_workstation(), 100)
        assert job.ask(i.Resume).why == "its maximum lifetime is used up: start another workstation"
        assert job.ask(i.Stop).ask(i.Retry).why == "its maximum lifetime is used up: start another workstation"

    def test_at_its_end_it_is_stopped_and_not_failed(self) -> None:
        job = a_workstation().started().exited(None, signal=15, reason=EndReason.TIME_LIMIT).sealed()
        assert (job.state, job.end) == (State.STOPPED, EndReason.LIFETIME_OVER)
        assert job.record.failed_stage is None

    def test_a_failure_at_its_end_is_not_tried_again(self) -> None:
        job = a_workstation(retries=3).started()
        job.exited(1, started_at=at(4), ended_at=at(104)).sealed()
        assert (job.state, job.end) == (State.FAILED, EndReason.EXIT_NONZERO)


class TestIdle:
    """`seen_idle`, the policy `idle`, and a snooze."""

    def test_idle_it_says_since_when_and_when_it_is_suspended(self) -> None:
        job = a_workstation().started().tell(f.SeenIdle, idle_since=at(20), suspends_at=at(50))
        assert _marks(job) == (at(20), at(50))
        assert job.events[-1] == "stage"
        assert _marks(job.tell(f.SeenIdle)) == (None, None)

    def test_a_snooze_puts_the_suspension_off_whichever_comes_first(self) -> None:
        first = a_workstation().started().ask(i.Snooze, until=at(90))
        first.tell(f.SeenIdle, idle_since=at(20), suspends_at=at(50))
        later = a_workstation().started().tell(f.SeenIdle, idle_since=at(20), suspends_at=at(50))
        later.ask(i.Snooze, until=at(90))
        assert _marks(first) == _marks(later) == (at(20), at(90))

    def test_a_suspension_that_a_snooze_overtook_is_ignored(self) -> None:
        job = a_workstation().started().ask(i.Snooze, until=at(90))
        job.tell(f.PolicyPause, policy="idle", reason="idle since 09:00:20", at=at(50))
        assert (job.state, job.why) == (State.RUNNING, "its user has put that off")
        job.tell(f.PolicyPause, policy="idle", reason="idle since 09:00:20", at=at(90))
        assert job.events[-1] == "desired"

    def test_another_policy_is_not_put_off(self) -> None:
        job = a_workstation().started().ask(i.Snooze, until=at(90))
        assert job.tell(f.PolicyPause, policy="window", reason="closed", at=at(50)).last.what == "applied"

    def test_idle_of_an_older_attempt_says_nothing_of_this_one(self) -> None:
        job = _up(a_workstation(), 30).ask(i.Resume).admitted(2).staged().accepted().running()
        job.tell(f.SeenIdle, attempt=1, idle_since=at(20), suspends_at=at(50))
        assert _marks(job) == (None, None)

    @pytest.mark.parametrize(
        "end",
        [
            pytest.param(lambda job: job.ask(i.Pause), id="it is pausing"),
            pytest.param(lambda job: job.exited(0), id="it has exited"),
            pytest.param(lambda job: job.tell(f.Lost).sealed(), id="it is lost"),
            pytest.param(lambda job: job.ask(i.Pause).exited(**STOPPED).sealed().ask(i.Resume), id="it waits anew"),
        ],
    )
    def test_what_is_not_up_is_not_idle(self, end: Any) -> None:
        job = end(a_workstation().started().tell(f.SeenIdle, idle_since=at(20), suspends_at=at(50)))
        assert _marks(job) == (None, None)

    @pytest.mark.parametrize(
        ("build", "why"),
        [
            pytest.param(
                lambda: a_job().started(),
                "it is a batch job: only a workstation is suspended for being idle",
                id="a batch job",
            ),
            pytest.param(
                lambda: a_workstation(idle=None).started(),
                "nothing suspends this workstation for being idle",
                id="no limit",
            ),
            pytest.param(lambda: a_workstation().started().ask(i.Pause), "it is being paused", id="pausing"),
            pytest.param(lambda: a_workstation().started().ask(i.Stop), "it is being stopped", id="stopping"),
            pytest.param(
                lambda: a_workstation(), "it is not up: it waits at a gate and goes on once that is open", id="waiting"
            ),
        ],
    )
    def test_what_cannot_be_put_off_is_refused(self, build: Any, why: str) -> None:
        assert build().ask(i.Snooze, until=at(90)).why == why


def _marks(job: Job) -> tuple[object, object]:
    mark = job.record.workstation
    assert mark is not None
    return mark.idle_since, mark.suspends_at
