"""Rule 2: facts merge idempotently, and reordering or repeating evidence between two decisions changes nothing."""

from itertools import permutations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.picture import merge
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from tests.unit.lifecycle.histories import Seeded, between_decisions, in_batches, shuffled, without_seq, worlds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment
from tests.unit.lifecycle.world import Entry, World


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(0, 2**32 - 1))
def test_evidence_commutes(world: World, seed: int) -> None:
    """Between two decisions, the verdict among them, the order of evidence shows nowhere but in `seq` and log times."""
    choices = Seeded(seed)
    for run in between_decisions(world.log):
        now = run[0].now
        items = [entry.item for entry in run]
        told = start = run[0].before
        for item in items:
            told = advance(told, [item], now).record
        mixed = start
        for batch in in_batches(choices, shuffled(choices, items)):
            mixed = advance(mixed, batch, now).record
        if mixed.attempt != told.attempt or mixed.current.sealed != told.current.sealed:
            event("a lost that was disproved later sealed the attempt first")
            _same_evidence(mixed, told)
        else:
            assert without_seq(mixed) == without_seq(told)


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 2**32 - 1))
def test_evidence_commutes_across_the_verdict(world: World, seed: int) -> None:
    """What comes after the verdict instead of before it changes evidence and usage: never state or end reason."""
    choices = Seeded(seed)
    for index, entry in enumerate(world.log):
        if not (entry.is_decision and entry.after.current.sealed and not entry.before.current.sealed):
            continue
        if isinstance(entry.item, i.CommandBase | f.PolicyPause | f.PolicyStop):
            continue
        start, items = _evidence_before(world.log[: index + 1])
        late = [item for item in items[:-1] if item.kind in ("gpus_freed", "seen_pending", "input_valid")]
        early = [item for item in items if item not in late]
        ended = start
        for item in early:
            ended = advance(ended, [item], entry.now).record
        assert ended.current.sealed
        assert ended.end_reason is entry.after.end_reason
        after = ended
        for item in shuffled(choices, late):
            after = advance(after, [item], entry.now).record
        _same_evidence(after, entry.after)
        shown = {"attempts", "gpus_freed", "seq"}
        assert after.model_dump(exclude=shown) == ended.model_dump(exclude=shown)
        assert after.gpus_freed == entry.after.gpus_freed


def _evidence_before(log: list[Entry]) -> tuple[JobRecord, list[i.AnyInput]]:
    """The run of evidence that ends with the verdict, and the record at its start."""
    items: list[i.AnyInput] = [log[-1].item]
    start = log[-1].before
    for entry in reversed(log[:-1]):
        if entry.is_decision:
            break
        items.insert(0, entry.item)
        start = entry.before
    return start, items


def _same_evidence(one: JobRecord, other: JobRecord) -> None:
    """Wherever a verdict fell: the same facts are known of every attempt, and the same GPU time."""
    for attempt, twin in zip(one.attempts, other.attempts, strict=False):
        assert attempt.evidence == twin.evidence
        if attempt.sealed == twin.sealed:
            assert attempt.segments == twin.segments


MOVES = {
    "accepted comes after running": ("accepted", "seen_pending", "seen_running"),
    "an end nobody saw running": ("accepted", "exited"),
    "a lost and what disproves it": ("lost", "seen_running", "accepted"),
    "a lost and then an exit": ("lost", "exited", "seen_running"),
    "a requeue and what follows it": ("seen_running", "segment_requeued", "pending_again", "running_again"),
    "two ends of one segment": ("exited", "segment_requeued", "seen_running"),
    "findings and the vote": ("input_valid", "input_invalid"),
    "a refusal, and the vote that came with it": ("input_invalid", "unstaged"),
    "a refused launch, and the vote that came with it": ("launch_refused", "never_launched", "staging_sealed"),
    "a vote before staged": ("staging_sealed", "staged", "input_valid"),
}


@pytest.mark.parametrize("kinds", [pytest.param(kinds, id=name) for name, kinds in MOVES.items()])
def test_any_order_of_a_few_facts_gives_one_record(kinds: tuple[str, ...]) -> None:
    job = a_job(warnings=("said at submit",)).admitted()
    facts = [_the(job, kind) for kind in kinds]
    records = []
    for order in permutations(facts):
        record = job.record
        for fact in (*order, order[0]):
            record = advance(record, [fact], at(30)).record
        records.append(without_seq(record))
    assert all(record == records[0] for record in records)


def _the(job: Job, kind: str) -> f.AnyFact:
    again = segment(1, created=7)
    made: dict[str, f.AnyFact] = {
        "accepted": job.fact(f.Accepted, segment=segment(), backend="local", cluster="c", ref="r"),
        "seen_pending": job.fact(f.SeenPending, segment=segment(), raw_state="PENDING", raw_reason="Priority"),
        "lost": job.fact(f.Lost, last_seen_at=at(5)),
        "seen_running": job.fact(f.SeenRunning, segment=segment(), started_at=at(4), raw_state="RUNNING"),
        "exited": job.fact(
            f.Exited, segment=segment(), code=0, ended_at=at(6), raw_state="DONE", self_reported=True, message="odd"
        ),
        "segment_requeued": job.fact(
            f.SegmentRequeued, segment=segment(), started_at=at(4), ended_at=at(6), raw_reason="preempted"
        ),
        "pending_again": job.fact(f.SeenPending, segment=again, raw_state="PENDING"),
        "running_again": job.fact(f.SeenRunning, segment=again, started_at=at(8), raw_state="RUNNING"),
        "input_valid": job.fact(f.InputValid, warnings=("could not be checked",)),
        "input_invalid": job.fact(
            f.InputInvalid, findings=(f.Finding(code="missing", place="a", message="a is not there"),)
        ),
        "staged": job.fact(f.Staged, directory="e1", nothing_to_copy=False),
        "staging_sealed": job.fact(f.StagingSealed, staged=True, outcome="none"),
        "launch_refused": job.fact(f.LaunchRefused, message="no such partition"),
        "never_launched": job.fact(f.LauncherSealed, ran=False, because="launch_refused"),
        "unstaged": job.fact(f.StagingSealed, staged=False, outcome="none", because="input_invalid"),
    }
    return made[kind]


def test_the_higher_version_wins_in_any_order() -> None:
    job = a_job().admitted().staged().accepted()
    old = job.fact(f.SeenPending, segment=segment(), raw_state="PENDING", raw_reason="Priority")
    new = job.fact(f.SeenPending, segment=segment(), raw_state="PENDING", raw_reason="Resources")
    for order in ((old, new), (new, old), (new, old, new, old)):
        record = advance(job.record, order, at(30)).record
        assert record.backend.raw_reason == "Resources"


@pytest.mark.parametrize(
    ("known", "told", "taken"),
    [
        pytest.param((1, 5), (1, 5), False, id="the same version again"),
        pytest.param((1, 5), (1, 4), False, id="an older version"),
        pytest.param((1, 5), (1, 6), True, id="a newer version"),
        pytest.param((1, 5), (2, 1), True, id="a lower number of a later epoch"),
        pytest.param((2, 1), (1, 9), False, id="a higher number of an earlier epoch"),
    ],
)
def test_versions_are_ordered_by_epoch_then_number(
    known: tuple[int, int], told: tuple[int, int], *, taken: bool
) -> None:
    job = a_job().admitted()
    facts = [job.fact(f.GpusFreed, version=f.Version(epoch=epoch, n=n)) for epoch, n in (known, told)]
    evidence = merge((), facts[0])
    assert evidence is not None
    assert (merge(evidence, facts[1]) is not None) == taken


def test_running_before_accepted_is_normal() -> None:
    job = a_job().admitted().staged().running()
    assert job.state is State.RUNNING
    job.accepted()
    assert job.state is State.RUNNING
    assert job.record.backend.ref == "r1"


def test_exited_without_running_is_normal() -> None:
    """A job of 0.01 s that nobody saw running: its start and end come from its end."""
    job = a_job().admitted().staged().exited(0, started_at=at(4), ended_at=at(4.01)).sealed()
    assert (job.state, job.end) == (State.SUCCEEDED, EndReason.SUCCEEDED)
    assert job.record.started_at == at(4)
    assert job.record.current.segments[0].gpu_milliseconds == 20
    assert [stage.status for stage in job.record.stages] == ["passed"] * 5


def test_a_later_sighting_disproves_a_lost() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(5))
    assert job.record.current.segments[0].ended == "lost"
    job.running()
    assert job.state is State.RUNNING
    assert job.record.current.segments[0].ended is None
    job.exited(0).sealed()
    assert job.state is State.SUCCEEDED


def test_an_older_sighting_does_not_disprove_a_lost() -> None:
    job = a_job().started()
    late = job.fact(f.SeenRunning, segment=segment(), started_at=at(4), raw_state="running")
    job.tell(f.Lost, last_seen_at=at(5)).take(late).sealed()
    assert job.end is EndReason.LOST


def test_progress_within_a_segment_only_grows() -> None:
    job = a_job().started()
    job.tell(f.SeenPending, segment=segment(), raw_state="PENDING")
    assert job.state is State.RUNNING
    job.exited(0).running()
    assert job.record.stages[4].status == "active"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        pytest.param(segment(0, created=3), segment(1, created=50), id="a restart"),
        pytest.param(segment(0, created=50), segment(1, created=3), id="a restart, by clocks that disagree"),
        pytest.param(
            segment(0, submission="zz", created=3), segment(0, submission="aa", created=50), id="a later submission"
        ),
    ],
)
def test_the_newest_segment_is_the_latest_whatever_was_told_last(older: f.SegmentKey, newer: f.SegmentKey) -> None:
    job = a_job(infrastructure=5).admitted().staged().running(newer, started=51).requeued(older)
    assert job.state is State.RUNNING
    assert [one.key for one in job.record.current.segments] == [older, newer]
    assert [one.ended for one in job.record.current.segments] == ["requeued", None]


def test_a_segment_whose_creation_is_told_in_two_ways_is_one() -> None:
    """Launcher and watcher may read different clocks for one and the same segment."""
    job = a_job(infrastructure=5).admitted().staged().accepted(segment(created=30)).running(segment(created=5))
    assert [one.key.created_at for one in job.record.current.segments] == [at(5)]
    job.running(segment(1, created=20), started=21)
    assert [one.key.restart for one in job.record.current.segments] == [0, 1]


def test_evidence_after_the_verdict_is_an_event_of_its_own() -> None:
    job = a_job().started().tell(f.Lost, last_seen_at=at(6)).sealed()
    assert job.record.current.segments[0].gpu_milliseconds == 2 * 10_000, "to the last sighting, at 14"
    job.exited(0)
    assert job.events[-1] == "evidence"
    assert (job.state, job.end) == (State.FAILED, EndReason.LOST)
    assert job.record.current.segments[0].gpu_milliseconds == 2 * 5_000
    assert job.record.current.segments[0].billable


def test_warnings_of_a_superseded_fact_are_gone() -> None:
    job = a_job(warnings=("said at submit",)).admitted()
    job.tell(f.InputValid, warnings=("the store was slow",)).tell(f.InputValid, warnings=())
    assert job.record.warnings == ("said at submit",)


@pytest.mark.parametrize("kind", [f.Accepted, f.Exited, f.SeenRunning])
def test_naive_times_are_refused(kind: type[f.FactBase]) -> None:
    job = a_job()
    naive = at(3).replace(tzinfo=None)
    with pytest.raises(ValueError, match="timezone"):
        job.fact(kind, segment={"submission": "s", "created_at": naive}, at=naive)


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(ValueError, match="give an aware one"):
        advance(a_job().record, [], at(3).replace(tzinfo=None))


@pytest.mark.parametrize("command", [i.Stop, i.Pause])
def test_a_commands_naive_time_is_refused(command: type[i.CommandBase]) -> None:
    with pytest.raises(ValueError, match="timezone"):
        command(actor="rin", at=at(3).replace(tzinfo=None))
