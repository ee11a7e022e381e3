"""A stage shows what is known of it as soon as that is known, and the verdict does not turn it round."""

from typing import Any

import pytest
from hypothesis import given, settings

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord, Stage
from shared.lifecycle.states import ACTIVE, State
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment
from tests.unit.lifecycle.world import World

ENDED = {"passed", "failed", "skipped"}
EXITS: dict[str, tuple[type[i.CommandBase] | None, dict[str, Any], str]] = {
    "exit 0": (None, {"code": 0}, "passed"),
    "exit 3": (None, {"code": 3}, "failed"),
    "a signal": (None, {"code": None, "signal": 9}, "failed"),
    "exit 0 over its time limit": (None, {"code": 0, "reason": EndReason.TIME_LIMIT}, "failed"),
    "cancelled at the backend": (None, {"code": 0, "reason": EndReason.STOPPED_AT_BACKEND}, "skipped"),
    "ended by our stop": (i.Stop, {"code": None, "signal": 15, "stop_recorded": True}, "skipped"),
    "ended by our pause": (i.Pause, {"code": 0, "stop_recorded": True}, "skipped"),
    "by itself before our stop": (i.Stop, {"code": 0, "stop_recorded": False}, "passed"),
    "exit 3 by itself before our stop": (i.Stop, {"code": 3, "stop_recorded": False}, "failed"),
}


def _running_job(job: Job) -> Stage:
    return job.record.stages[3]


@pytest.mark.parametrize(("wish", "exited", "status"), [pytest.param(*case, id=name) for name, case in EXITS.items()])
def test_an_exit_shows_at_once_and_the_verdict_says_the_same(
    wish: type[i.CommandBase] | None, exited: dict[str, Any], status: str
) -> None:
    job = a_job().started()
    if wish is not None:
        job.ask(wish)
    job.exited(**exited)
    assert [stage.status for stage in job.record.stages] == ["passed", "passed", "passed", status, "active"]
    assert (_running_job(job).started_at, _running_job(job).ended_at) == (at(4), at(9))
    before = job.record.stages[:4]
    assert job.sealed().record.stages[:4] == before
    assert job.record.stages[4].status == "passed"


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_no_verdict_turns_an_ended_stage_round(world: World) -> None:
    for entry in world.log:
        before, after = entry.before, entry.after
        over = before.state in ACTIVE and after.state not in ACTIVE and after.state is not State.QUEUED
        if over and not isinstance(entry.item, f.Exited | i.CommandBase):
            assert _known(before) <= _known(after)


def _known(record: JobRecord) -> set[tuple[str, str]]:
    return {(stage.name, stage.status) for stage in record.stages[:4] if stage.status in ENDED}


def test_what_is_gone_says_since_when_and_is_no_longer_running_at_the_backend() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(20))
    assert (job.state, _running_job(job).status) == (State.RUNNING, "active")
    assert _running_job(job).waiting_on == "not seen at the backend since 09:00:20 UTC"
    assert job.record.backend.raw_state == "gone"


def test_what_was_never_seen_says_that_it_is_not_seen() -> None:
    job = a_job().admitted().staged().accepted().tell(f.Lost)
    assert job.record.stages[2].waiting_on == "not seen at the backend"


def test_what_is_gone_ran_until_it_was_seen_last() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(20)).sealed(outcome="none")
    assert (job.end, _running_job(job).status) == (EndReason.LOST, "failed")
    assert _running_job(job).ended_at == at(20)
    assert job.record.backend.raw_state == "gone"


@pytest.mark.parametrize(("outcome", "status"), [("verified", "passed"), ("none", "skipped"), ("failed", "skipped")])
def test_outputs_that_came_back_of_what_is_gone_are_not_skipped(outcome: str, status: str) -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(20)).sealed(outcome=outcome)
    assert (job.end, job.record.failed_stage) == (EndReason.LOST, "running_job")
    assert [stage.status for stage in job.record.stages[3:]] == ["failed", status]


def test_what_is_gone_after_a_stop_ran_until_it_was_seen_last() -> None:
    job = a_job().started().ask(i.Stop).tell(f.Lost, last_seen_at=at(20)).sealed(outcome="none")
    assert (job.end, _running_job(job).status, _running_job(job).ended_at) == (
        EndReason.STOPPED_BY_USER,
        "skipped",
        at(20),
    )


def test_what_is_seen_again_is_not_gone() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(5)).running(segment())
    assert (_running_job(job).waiting_on, job.record.backend.raw_state) == ("the command", "running")
