"""Why a job is where it is, what was seen, what comes next and what it cost: an answer for every record."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings

from services.launcher.settings import LauncherSettings
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.actions import actions
from shared.lifecycle.explain import (
    CHECKPOINT_GRACE_SECONDS,
    STOP_GRACE_SECONDS,
    Explanation,
    explain,
    idle_rule,
)
from shared.lifecycle.record import Signals, Workstation
from shared.lifecycle.seen import MOST
from shared.lifecycle.states import State
from shared.lifecycle.usage import gpu_milliseconds
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that, at, segment
from tests.unit.lifecycle.world import World

GATE = {"scope": "tenant acme", "lifted_by": "a tenant admin"}


def explained(job: Job) -> Explanation:
    return explain(job.record, actions(job.record, at(100)), at(100))


def why_and_next(job: Job) -> tuple[str, str, str | None, datetime | None]:
    told = explained(job)
    return told.why, told.next.what, told.next.who, told.next.at


@pytest.mark.parametrize("state", State)
def test_every_state_has_an_answer(state: State) -> None:
    told = explained(a_job_that(state))
    assert told.state is state
    assert told.why
    assert told.next.what
    assert told.evidence[0].what == "rin submitted it"


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_every_record_has_an_answer(world: World) -> None:
    record = world.record
    told = explain(record, actions(record, world.now), world.now)
    assert told.why
    assert told.next.what
    assert told.cost.gpu_seconds == f"{gpu_milliseconds(record, world.now) / 1000:.3f}"
    numbers = [seen.attempt for seen in told.evidence]
    assert numbers == sorted(numbers), "the newest attempt comes last"
    for number in set(numbers):
        times = [seen.at for seen in told.evidence if seen.attempt == number]
        assert times == sorted(times)
        assert len(times) <= MOST


def test_a_waiting_job_names_its_gate_who_opens_it_and_when() -> None:
    assert why_and_next(a_job()) == (
        "it waits for the gatekeeper to look at it",
        "it is let through, or says which gate holds it",
        "the gatekeeper",
        None,
    )
    gate = f.Gate(name="window", reason="open from 20:00", opens_at=at(500), **GATE)
    assert why_and_next(a_job().tell(f.Held, gates=(gate,))) == (
        "the gate window is closed: open from 20:00",
        "it goes on once the gate window is open",
        "a tenant admin",
        at(500),
    )
    held = a_job().ask(i.Hold, reason="audit", by_admin=True)
    assert why_and_next(held) == ("held by rin: audit", "it goes on once it is released", "an admin", None)


def test_the_gates_of_now_go_before_those_of_the_last_change() -> None:
    job = a_job().tell(f.Held, gates=(f.Gate(name="window", reason="open from 20:00", **GATE),))
    now = f.Gate(name="capacity", reason="needs 8 GPUs; 4 are free", **GATE)
    told = explain(job.record, actions(job.record, at(9)), at(9), gates=[now])
    assert told.why == "the gate capacity is closed: needs 8 GPUs; 4 are free"


def test_a_job_that_is_tried_again_says_what_failed_and_when_it_goes_on() -> None:
    job = a_job(retries=1).started().exited(3).sealed()
    until = job.record.retries.cooldown_until
    assert until is not None
    told = explain(job.record, {}, until - timedelta(seconds=1))
    assert told.why.startswith("the gate cooldown is closed: ")
    assert "attempt 1: the command exited with code 3; it is tried again" in told.why
    assert (told.next.who, told.next.at) == (None, until)
    assert told.evidence[-1].what == "it was retried by itself"
    over = explain(job.record, {}, until)
    assert over.why.startswith("it waits for the gatekeeper to look at it (attempt 1: ")


def test_what_the_services_owe_is_told_in_its_order() -> None:
    job = a_job().admitted()
    assert why_and_next(job)[:3] == (
        "its inputs and command are being checked",
        "its inputs are checked and staged in",
        "the stager",
    )
    assert why_and_next(job.staged())[:3] == (
        "its inputs are staged in, and it is being handed to the backend",
        "it is handed to the backend",
        "the launcher",
    )
    job.accepted().tell(f.SeenPending, segment=segment(), raw_state="PENDING", raw_reason="Priority")
    assert why_and_next(job)[:3] == ("the backend has not started it: Priority", "it starts", "local")
    assert why_and_next(job.running())[:3] == (
        "its command runs since 09:00:04 UTC",
        "its command ends",
        "the command",
    )
    assert why_and_next(job.exited())[:3] == (
        "its command has ended at 09:00:09 UTC, and its outputs are looked after",
        "its outputs are copied back",
        "the stager",
    )
    assert why_and_next(job.copied_back())[:3] == (
        "its command has ended at 09:00:09 UTC, and the cluster is being released",
        "the cluster is released",
        "the launcher",
    )


def test_a_time_limit_says_when_and_what_follows_it() -> None:
    assert why_and_next(a_job(time_limit=600).started())[1:] == (
        "its command ends, or is sent SIGTERM at its time limit: it is killed 10 s (by default) later",
        "the command",
        at(604),
    )


@pytest.mark.parametrize(("grace", "words", "due"), [(30, "30 s", at(94)), (None, "10 s (by default)", None)])
def test_past_its_time_limit_a_job_is_killed_after_the_stop_grace(
    grace: int | None, words: str, due: datetime | None
) -> None:
    job = a_job(time_limit=60).started()
    job.record = job.record.model_copy(update={"signals": Signals(stop_grace_seconds=grace)})
    assert why_and_next(job)[1:] == (
        f"its command ends: SIGTERM was due at its time limit, 09:01:04 UTC, and it is killed {words} later",
        "the command",
        due,
    )


def test_the_graces_that_are_told_of_are_those_of_the_launcher() -> None:
    told = (STOP_GRACE_SECONDS, CHECKPOINT_GRACE_SECONDS)
    fields = LauncherSettings.model_fields
    assert told == (fields["stop_grace_seconds"].default, fields["checkpoint_grace_seconds"].default)


def test_an_idle_workstation_says_when_and_one_in_use_names_the_rule() -> None:
    idle = a_job(kind="workstation", workstation=Workstation(idle_suspend_seconds=1800)).started()
    assert why_and_next(idle)[1] == "its command ends; it is suspended after 30 min without use"
    idle.tell(f.SeenIdle, idle_since=at(8), suspends_at=at(1808))
    assert why_and_next(idle)[1:] == (
        "it is suspended for being idle, unless somebody uses or snoozes it",
        "the watcher",
        at(1808),
    )
    never = a_job(kind="workstation", workstation=Workstation()).started()
    assert why_and_next(never)[1] == "its command ends; nothing suspends it for being idle"


def test_a_snooze_is_part_of_the_rule_until_it_is_over() -> None:
    mark = Workstation(idle_suspend_seconds=60, snoozed_until=at(200))
    assert idle_rule(mark, at(100)) == "it is suspended after 1 min without use, not before 09:03:20 UTC"
    assert idle_rule(mark, at(200)) == "it is suspended after 1 min without use"
    assert idle_rule(None, at(0)) is None


def test_what_was_sealed_before_its_end_was_seen_is_not_said_to_run() -> None:
    job = a_job().started().tell(f.LauncherSealed, ran=True)
    assert why_and_next(job)[:3] == (
        "it was not seen since 09:00:14 UTC, nothing of it runs any more, and it may be lost: nobody saw its end yet",
        "its end is found, or it is lost",
        "the watcher",
    )
    assert explained(job).cost.estimated, "until when it ran is not known"
    unseen = a_job().admitted().staged().accepted().tell(f.LauncherSealed, ran=True)
    assert why_and_next(unseen)[0].startswith("it was not seen, nothing of it runs any more")
    assert why_and_next(job.exited())[0].startswith("its command has ended at ")


def test_a_wish_says_who_asked_and_what_follows() -> None:
    job = a_job().started().ask(i.Stop, grace_seconds=30)
    why, what, who, when = why_and_next(job)
    assert why.startswith("a stop was asked for by rin at 2026-11-30 09:")
    assert why.endswith("; its command runs since 09:00:04 UTC")
    assert what == "its command ends on SIGTERM or is killed, its outputs are copied back, and then it is stopped"
    assert job.record.wish is not None
    assert (who, when) == ("the launcher", job.record.wish.at + timedelta(seconds=30))


def test_what_has_ended_says_what_may_be_asked() -> None:
    failed = a_job_that(State.FAILED)
    assert why_and_next(failed) == (
        "stage running job failed: the command exited with code 3",
        "nothing: it has ended; you can retry or delete it",
        None,
        None,
    )
    assert explained(a_job_that(State.SUCCEEDED)).next.what == "nothing: it has ended; you can delete it"
    paused = explained(a_job_that(State.PAUSED))
    assert paused.next.what == "nothing by itself: it is paused; you can resume or stop it"


def test_gpus_that_are_not_freed_and_outputs_that_are_copied_again_come_next() -> None:
    job = a_job().started().exited(3).tell(f.LauncherSealed, ran=True).copied_back()
    assert why_and_next(job)[1:3] == ("its GPUs are freed", "the launcher")
    again = a_job().started().exited().released().copied_back("failed", message="disk full").ask(i.Recopy)
    assert why_and_next(again)[2] == "the stager"
    assert explained(again).why.endswith("; its outputs are being copied again")


def test_says_where_it_was_seen_and_by_whom_attempt_after_attempt() -> None:
    job = a_job_that(State.FAILED).ask(i.Retry).started()
    told = explained(job)
    running = [seen for seen in told.evidence if seen.what == "its command runs"]
    assert [(seen.attempt, seen.where, seen.seen_by) for seen in running] == [
        (1, "local", "test"),
        (2, "local", "test"),
    ]
    ends = [seen.what for seen in told.evidence if seen.what.startswith("attempt 1 ended")]
    assert ends == ["attempt 1 ended: the command exited with code 3"]


def test_what_happened_is_told_in_its_own_order_whoever_saw_it_late() -> None:
    job = a_job().started().exited(3).sealed()
    late = [
        fact.model_copy(update={"at": at(90)}) if isinstance(fact, f.Exited) else fact
        for fact in job.record.current.evidence
    ]
    attempt = job.record.current.model_copy(update={"evidence": tuple(late)})
    told = explain(job.record.model_copy(update={"attempts": (attempt,)}), {}, at(100))
    order = [seen.what for seen in told.evidence]
    exited = next(index for index, what in enumerate(order) if what.startswith("exited with code 3"))
    assert exited < order.index("what it held is free")
    assert told.evidence[exited].at == at(9)


@pytest.mark.parametrize("running", [True, False])
def test_who_stopped_a_paused_attempt_is_still_told_after_the_next_began(running: bool) -> None:
    job = a_job()
    job = job.started().ask(i.Pause).exited(stop_recorded=True).sealed() if running else job.ask(i.Pause)
    job.ask(i.Stop, actor="ada").ask(i.Retry)
    told = [seen.what for seen in explained(job).evidence]
    assert any(what.startswith("attempt 1 ended: paused: by rin at ") for what in told)
    assert told[-1].startswith("it was retried by hand; before that: stopped: by ada at ")
    assert "before that" not in explained(a_job_that(State.FAILED).ask(i.Retry)).evidence[-1].what


def test_a_wish_is_told_however_it_ended() -> None:
    succeeded = a_job().started().ask(i.Stop, force=True).exited(0, stop_recorded=False).sealed()
    assert succeeded.state is State.SUCCEEDED
    wishes = [(seen.what, seen.seen_by) for seen in explained(succeeded).evidence if " asked to " in seen.what]
    assert wishes == [("rin asked to stop it, by force", "api")]
    paused = a_job().started().ask(i.Pause, reason="lunch").exited(stop_recorded=True).sealed()
    assert "rin asked to pause it: lunch" in [seen.what for seen in explained(paused).evidence]
    never = a_job().ask(i.UpstreamFailed, step="train")
    assert not any(" asked to " in seen.what for seen in explained(never).evidence)


def test_what_is_not_billed_and_what_is_estimated_is_told_with_the_cost() -> None:
    job = a_job().started().requeued().running(segment(1), started=7).exited(key=segment(1), started_at=at(7)).sealed()
    cost = explained(job).cost
    assert (cost.gpu_seconds, cost.not_billable_gpu_seconds, cost.estimated) == ("8.000", "4.000", False)
    lost = a_job().started().tell(f.Lost, last_seen_at=at(8)).sealed()
    assert explained(lost).cost.estimated
