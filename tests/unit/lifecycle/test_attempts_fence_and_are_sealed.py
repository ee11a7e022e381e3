"""Rule 3: attempts fence; terminal states, PAUSED and the next attempt need the attempt sealed by both votes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.derive import ADOPTED
from shared.lifecycle.duties import Duty, duties, holdings
from shared.lifecycle.picture import picture
from shared.lifecycle.record import Attempt, JobRecord
from shared.lifecycle.states import ACTIVE, TERMINAL, Desired, State
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that, at, segment
from tests.unit.lifecycle.world import Entry, World


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_attempts_fence_and_are_sealed(world: World) -> None:
    verdicts = 0
    for entry in world.log:
        before, after = entry.before, entry.after
        if isinstance(entry.item, f.FactBase) and entry.item.attempt != before.attempt:
            assert _what_people_see(after) == _what_people_see(before)
            assert after.current == before.current
        if after.state in TERMINAL | {State.PAUSED}:
            assert after.current.sealed
        assert all(attempt.sealed for attempt in after.attempts[:-1])
        assert 0 <= after.attempt - before.attempt <= 1
        verdicts += _written(entry)
        for attempt in after.attempts:
            _is_fenced(attempt)
    assert verdicts == sum(attempt.sealed for attempt in world.record.attempts), "each verdict is written once"


def _what_people_see(record: JobRecord) -> dict[str, Any]:
    return record.model_dump(exclude={"attempts", "seq"})


def _written(entry: Entry) -> int:
    known = {attempt.number: attempt for attempt in entry.before.attempts}
    count = 0
    for attempt in entry.after.attempts:
        was = known.get(attempt.number)
        if was is None or not was.sealed:
            count += attempt.sealed
        elif not isinstance(entry.item, f.Recopied):
            assert (attempt.end_reason, attempt.exit, attempt.message) == (was.end_reason, was.exit, was.message)
    return count


def _is_fenced(attempt: Attempt) -> None:
    """An attempt that was let through is sealed by both votes, and with the command's end known if it ran."""
    if not attempt.sealed or attempt.admission is None:
        return
    if attempt.folded is not None and attempt.folded.until is None:
        return  # one of long ago: what was said of it is no longer kept
    seen = picture(attempt)
    assert seen.stager_voted
    assert seen.launcher_sealed is not None or not seen.launcher_asked
    assert all(one.ended is not None for one in attempt.segments if one.started_at is not None)


def test_the_last_vote_writes_the_verdict_when_it_is_the_launchers() -> None:
    job = a_job().started().exited(0).copied_back()
    assert job.events[-1] == "stage"
    assert job.released().state is State.SUCCEEDED


def test_the_last_vote_writes_the_verdict_when_it_is_the_stagers() -> None:
    job = a_job().started().exited(0).released()
    assert job.events[-1] == "stage"
    assert job.copied_back().state is State.SUCCEEDED


def test_with_nothing_to_copy_back_staged_is_the_stagers_vote() -> None:
    job = a_job(outputs=False).started().exited(0)
    assert not duties(job.record) & {Duty.COPY_BACK, Duty.SEAL_STAGING}
    assert job.released().state is State.SUCCEEDED


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param("input_invalid", id="its input is invalid"),
        pytest.param("staging_failed", id="it cannot be staged in"),
    ],
)
def test_an_attempt_that_was_never_staged_needs_no_vote_of_the_launcher(fact: str) -> None:
    job = a_job().admitted()
    if fact == "input_invalid":
        job.tell(f.InputInvalid, findings=(f.Finding(code="missing", place="x", message="x is not there"),))
    else:
        job.tell(f.StagingFailed, message="the store is full")
    assert duties(job.record) == {Duty.SEAL_STAGING}
    job.copied_back("none", staged=False)
    assert job.state is State.FAILED


def test_a_vote_that_says_staged_asks_the_launcher_even_before_staged_is_known() -> None:
    job = a_job().admitted().ask(i.Stop).copied_back("none", staged=True)
    assert job.state is State.SUBMITTED
    assert duties(job.record) == {Duty.STOP}
    assert job.released(ran=False).state is State.STOPPED


def test_an_attempt_that_ran_is_not_sealed_before_its_end_is_known() -> None:
    job = a_job(outputs=False).admitted().staged().accepted().ask(i.Stop).released(ran=True)
    assert job.state is State.PENDING
    assert duties(job.record) == {Duty.OBSERVE}
    assert job.exited(None, signal=15, stop_recorded=True).state is State.STOPPED


def test_an_attempt_that_was_seen_running_owes_its_end_whatever_the_launcher_says() -> None:
    job = a_job(outputs=False).started().ask(i.Stop).released(ran=False)
    assert job.state is State.RUNNING
    assert duties(job.record) == {Duty.OBSERVE}
    assert job.tell(f.Lost, last_seen_at=at(9)).state is State.STOPPED


@pytest.mark.parametrize("state", sorted(ACTIVE))
@pytest.mark.parametrize("command", [i.Stop, i.Pause], ids=["stop", "pause"])
def test_from_submitted_on_a_wish_only_sets_what_is_desired(state: State, command: type[i.CommandBase]) -> None:
    job = a_job_that(state).ask(command)
    assert job.state is state
    assert job.events[-1] == "desired"
    assert job.record.wish is not None
    assert job.record.wish.actor == "rin"


def test_resume_before_paused_is_refused() -> None:
    job = a_job_that(State.RUNNING).ask(i.Pause).ask(i.Resume)
    assert job.last.what == "refused"
    assert job.why == "it is still pausing: resume it once it is paused"


def test_stop_goes_before_pause_and_a_force_adds_to_a_stop() -> None:
    job = a_job_that(State.RUNNING).ask(i.Pause).ask(i.Stop)
    assert job.record.desired_state is Desired.STOPPED
    assert job.ask(i.Pause).why == "it is being stopped"
    assert job.ask(i.Stop).why == "it is being stopped already"
    job.ask(i.Stop, force=True)
    assert job.events[-1] == "desired"
    assert job.record.wish is not None
    assert job.record.wish.force
    assert job.ask(i.Stop, force=True).last.what == "ignored"


def _second_attempt() -> Job:
    job = a_job_that(State.FAILED).ask(i.Retry).admitted(2)
    assert job.record.attempt == 2
    return job


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        pytest.param(f.Admitted, {"admission": 9}, id="an admission"),
        pytest.param(f.LauncherSealed, {"ran": False}, id="a vote"),
        pytest.param(f.Lost, {}, id="a loss"),
        pytest.param(f.PolicyStop, {"policy": "budget", "reason": "spent"}, id="a policy's stop"),
        pytest.param(
            f.SeenRunning, {"segment": segment(), "started_at": at(4), "raw_state": "running"}, id="a sighting"
        ),
    ],
)
def test_a_fact_of_an_older_attempt_moves_nothing(kind: type[f.FactBase], fields: dict[str, Any]) -> None:
    job = _second_attempt()
    before = job.record
    job.tell(kind, attempt=1, **fields)
    assert _what_people_see(job.record) == _what_people_see(before)
    assert job.record.current == before.current


def test_evidence_of_an_older_attempt_corrects_that_attempts_gpu_time() -> None:
    job = _second_attempt()
    job.exited(3, attempt=1, ended_at=at(6))
    assert job.events[-1] == "stage"
    assert job.record.attempts[0].segments[0].gpu_milliseconds == 2 * 2_000
    assert job.record.attempts[1].segments == ()


def test_evidence_of_an_older_attempt_while_queued_is_an_event_that_metering_reads() -> None:
    job = a_job_that(State.FAILED).ask(i.Retry).exited(3, attempt=1, ended_at=at(6))
    assert job.events[-1] == "evidence"


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED, State.SUCCEEDED])
def test_an_admission_of_a_newer_attempt_is_refused(state: State) -> None:
    """The gatekeeper's slice was taken back with the record: it will admit anew."""
    job = a_job_that(state)
    before = job.record
    job.tell(f.Admitted, admission=7, attempt=2)
    assert job.last.what == "refused"
    assert job.why == "attempt 2 is not known: the record is at attempt 1"
    assert job.record is before


def _held() -> Job:
    job = a_job(retries=1, warnings=("said at submit",))
    return job.tell(f.Held, gates=(f.Gate(name="capacity", reason="full", scope="c", lifted_by="time"),))


def _ran() -> Job:
    return _held().admitted().tell(f.InputValid, warnings=("odd",)).staged().accepted().running()


STOPPED: dict[str, Any] = {"code": None, "signal": 15, "stop_recorded": True, "self_reported": True}


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: _ran().exited(3, self_reported=True).sealed(), id="retried by itself"),
        pytest.param(lambda: _ran().ask(i.Stop).exited(**STOPPED).sealed().ask(i.Retry), id="stopped and retried"),
        pytest.param(lambda: _ran().ask(i.Pause).exited(**STOPPED).sealed().ask(i.Resume), id="paused and resumed"),
        pytest.param(lambda: _held().ask(i.Pause).ask(i.Resume), id="paused and resumed while it waited"),
        pytest.param(lambda: _held().ask(i.Stop).ask(i.Retry), id="stopped and retried while it waited"),
    ],
)
def test_the_next_attempt_holds_nothing_of_the_last(build: Callable[[], Job]) -> None:
    """But what is the job's own: its budgets and what it was submitted with; its cooldown is the attempt's."""
    fresh = a_job(retries=1, warnings=("said at submit",)).record
    job = build()
    assert (job.events[-1], job.record.attempt) == ("queued", 2)
    own = {"attempt", "attempts", "seq", "retries", "message", "stages", "gate", "closed_gates"}
    assert job.record.model_dump(exclude=own) == fresh.model_dump(exclude=own)
    kept = {"number", "origin", "queued_at", "cooldown_until", "up_before_ms"}
    assert job.record.current.model_dump(exclude=kept) == fresh.current.model_dump(exclude=kept)


def test_evidence_of_an_attempt_that_was_never_admitted_adopts_it() -> None:
    """After a restore the record may be older than the world: a hold does not keep what runs from being seen."""
    job = a_job().ask(i.Hold, reason="by hand")
    job.tell(f.Held, gates=(f.Gate(name="hold", reason="rin holds it", scope="job", lifted_by="rin"),))
    job.running()
    assert job.state is State.RUNNING
    assert job.record.current.admission == ADOPTED
    assert (job.record.gate, job.record.closed_gates) == (None, ())
    assert holdings(job.record) == (True, True)


def test_an_adopted_attempt_was_let_through_when_its_first_evidence_says() -> None:
    job, other = a_job(), a_job()
    early, late = job.fact(f.InputValid, at=at(2)), job.fact(f.GpusFreed, at=at(5))
    assert job.take(late).take(early).record.current == other.take(early, late).record.current
    assert job.record.current.admitted_at == at(2)


def test_a_sighting_of_a_sealed_attempt_changes_no_record_but_its_evidence() -> None:
    job = a_job_that(State.STOPPED).ask(i.Retry).admitted().staged().accepted().ask(i.Stop)
    job.released(ran=False).copied_back("none")
    before = job.record
    job.running()
    assert job.state is State.STOPPED
    assert _what_people_see(job.record) == _what_people_see(before)
    assert job.record.current.segments[0].ended == "lost", "nothing of a sealed attempt counts on"


def test_gpus_are_reserved_until_they_are_freed_and_the_slot_until_the_seal() -> None:
    job = a_job()
    assert holdings(job.record) == (False, False)
    assert holdings(job.admitted().record) == (True, True)
    assert holdings(job.staged().accepted().running().exited(0).record) == (True, True)
    assert holdings(job.tell(f.GpusFreed).record) == (False, True)
    assert holdings(job.tell(f.LauncherSealed, ran=True).copied_back().record) == (False, False)


def test_a_job_without_gpus_holds_none() -> None:
    assert holdings(a_job(gpus=0).started().record) == (False, True)


def test_gpus_of_a_sealed_attempt_stay_reserved_until_the_launcher_frees_them() -> None:
    job = a_job(outputs=False).started().exited(0).tell(f.LauncherSealed, ran=True)
    assert job.state is State.SUCCEEDED
    assert holdings(job.record) == (True, False)
    assert holdings(job.tell(f.GpusFreed).record) == (False, False)
    assert job.events[-1] == "evidence"


def test_a_vote_whose_reason_has_not_come_is_asked_for() -> None:
    job = a_job().admitted()
    facts = (
        job.fact(f.Staged, directory="e1", nothing_to_copy=False),
        job.fact(f.LauncherSealed, ran=False, because="launch_refused"),
    )
    record = advance(job.record, facts, at(30)).record
    assert Duty.LAUNCH in duties(record)
    record = advance(record, [job.fact(f.LaunchRefused, message="no such partition")], at(31)).record
    assert duties(record) == {Duty.SEAL_STAGING}


def test_the_record_names_the_cluster_from_the_admission_on_and_each_attempt_its_own() -> None:
    job = a_job().tell(f.Admitted, admission=1, cluster="hpc")
    assert job.record.backend.cluster == "hpc"
    job.staged().accepted().running().exited(3).sealed().ask(i.Retry)
    assert job.record.backend.cluster is None
    assert job.tell(f.Admitted, admission=job.last_version + 1, cluster="other").record.backend.cluster == "other"
