"""What an observer of a Slurm cluster sees, look by look: nobody ends, and nobody is absent, for want of an answer."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from services.watcher.slurm.blindness import Blind
from shared.backends.local.messages import CouldNotAsk
from shared.backends.slurm import records
from shared.backends.slurm.records import Records
from tests.unit.watcher.slurm.looking import Looking, job, name, past, row
from tests.unit.watcher.slurm.rows import NOON, accounted, at, queued

RUNNING = queued("RUNNING", start=0)
DONE = queued("COMPLETED", exit="0:0", start=0, end=2)


@pytest.fixture
def looking(tmp_path: Path) -> Looking:
    return Looking(tmp_path)


async def test_what_is_unchanged_is_the_same_object(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.client.rows = [
        row(0, replace(RUNNING, run_time=timedelta(seconds=1))),
        row(1, queued("PENDING", "Priority")),
    ]
    before = await looking.look()
    looking.client.rows[0] = replace(looking.client.rows[0], run_time=timedelta(seconds=3))
    after = await looking.look()
    assert all(one is another for one, another in zip(before.submissions, after.submissions, strict=True))
    assert [one.job for one in after.submissions] == [job(0), job(1)]


async def test_a_controller_that_does_not_answer_changes_nothing_and_is_remembered(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.client.rows = [row(0, RUNNING)]
    before = await looking.look()
    looking.client.no_queue = "slurmctld is down"
    look = await looking.look()
    assert (look.complete, look.problem) == (False, "slurmctld is down")
    assert look.submissions[0] is before.submissions[0]
    looking.client.no_queue = None
    looking.recorded(0, 5)
    looking.client.rows = [row(0, queued("COMPLETED", exit="0:0", start=0, end=60))]
    told = await looking.told(after=58)
    [(kind, end)] = told[0]
    assert (kind, end["ended_at"]) == ("exited", at(5).isoformat())


async def test_the_next_observer_knows_when_the_last_one_was_blind(looking: Looking) -> None:
    looking.client.rows = [row(0, RUNNING)]
    await looking.look()
    looking.tables.left = looking.eyes._blindness.sight
    looking.eyes = looking.another()
    await looking.eyes.begin()
    looking.recorded(0, 5)
    looking.client.rows = [row(0, queued("COMPLETED", exit="0:0", start=0, end=60))]
    told = await looking.told(after=60)
    assert told[0][0][1]["ended_at"] == at(5).isoformat()
    assert looking.eyes._blindness.times == (Blind(at(2), at(62)),)


async def test_accounting_is_asked_of_who_is_missing_only_and_not_all_the_time(looking: Looking) -> None:
    looking.client.rows = [row(number, queued("PENDING", "Priority")) for number in range(30)]
    looking.tables.owe(*range(30))
    for _ in range(10):
        await looking.look()
    asked_at_first = len(looking.client.asked)
    assert asked_at_first <= 1
    del looking.client.rows[4]
    for _ in range(5):
        await looking.look()
    since, names = looking.client.asked[-1]
    assert (since, names) == (NOON - timedelta(hours=1), frozenset({name(4)}))
    assert len(looking.client.asked) <= asked_at_first + 3


async def test_a_job_that_left_the_queue_ends_by_accounting(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.client.rows = [row(0, RUNNING)]
    await looking.look()
    looking.client.rows, looking.client.ended = [], [past(0, accounted("FAILED", exit="3:0", start=0, end=4))]
    assert await looking.alive() == set()
    told = await looking.told(after=6)
    assert [(kind, end["code"]) for kind, end in told[0]] == [("exited", 3)]


async def test_who_is_in_neither_is_absent(looking: Looking) -> None:
    looking.tables.owe(0)
    look = await looking.look()
    assert (look.complete, look.submissions) == (True, ())
    assert await looking.eyes.find(job(0), 1) == []


async def test_accounting_that_cannot_be_asked_is_no_absence_until_it_has_answered(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.client.no_accounting = "slurmdbd is down"
    for _ in range(6):
        assert not (await looking.look()).complete
    with pytest.raises(CouldNotAsk):
        await looking.eyes.find(job(0), 1)
    looking.client.no_accounting = None
    assert (await looking.look(after=6)).complete


async def test_before_it_is_lost_accounting_is_asked_once_more(looking: Looking) -> None:
    looking.client.rows = [row(1, RUNNING)]
    await looking.look()
    looking.tables.owe(0)
    looking.tables.owed[0] = replace(looking.tables.owed[0], accepted_at=at(3))
    await looking.look()
    looking.client.ended = [past(0, accounted("COMPLETED", start=3, end=4))]
    with pytest.raises(CouldNotAsk, match="next look"):
        await looking.eyes.find(job(0), 1)
    assert [kind for kind, _ in (await looking.told())[0]] == ["exited"]


async def test_before_it_is_lost_the_runners_record_ends_it_with_a_warning(tmp_path: Path) -> None:
    looking = Looking(tmp_path, accounting=False)
    looking.tables.owe(0)
    looking.recorded(0, 5, code=3)
    assert (await looking.look()).submissions == ()
    [found] = await looking.eyes.find(job(0), 1)
    [end] = looking.eyes.found([found])
    assert (end.kind, end.fact["code"], end.fact["self_reported"]) == ("exited", 3, True)
    assert "only the runner's own record" in end.fact["message"]
    assert looking.client.asked == []


async def test_an_earlier_runs_record_is_not_the_end_of_a_later_one(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.recorded(0, 5)
    directory = looking.directory(0)
    later = (directory / "claim").read_text().replace('"restart": 0', '"restart": 1')
    (directory / "claim.1").write_text(later)
    assert len(records.read(str(directory)).claims) == 2
    await looking.look()
    assert await looking.eyes.find(job(0), 1) == []


async def test_a_directory_that_cannot_be_read_holds_back_its_own_end_only_and_not_for_ever(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking.tables.owe(0, 1)
    looking.client.rows = [row(0, RUNNING), row(1, RUNNING)]
    await looking.look()
    looking.recorded(1, 2)
    read = records.read

    def refusing(directory: str) -> Records:
        if job(0) in directory:
            raise PermissionError(13, "Permission denied")
        return read(directory)

    monkeypatch.setattr(records, "read", refusing)
    looking.client.rows = [row(0, DONE), row(1, DONE)]
    told = await looking.told()
    assert [told[number][0][0] for number in (0, 1)] == ["seen_running", "exited"]
    assert 0 in await looking.alive()
    told = await looking.told(after=60)
    assert told[0][0][0] == "exited"


async def test_the_records_of_who_has_ended_are_not_read_at_each_look(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking.client.rows = [row(number, DONE) for number in range(20)]
    for number in range(20):
        looking.recorded(number, 2)
    await looking.look()
    reads: list[str] = []

    def counted(directory: str) -> Records:
        reads.append(directory)
        return Records()

    monkeypatch.setattr(records, "read", counted)
    for _ in range(5):
        look = await looking.look()
    assert reads == []
    assert len(look.submissions) == 20


async def test_a_record_that_a_shared_file_system_shows_late_is_still_heard(looking: Looking) -> None:
    looking.client.rows = [row(0, DONE)]
    assert (await looking.told())[0][0][1]["stop_recorded"] is None
    looking.recorded(0, 2)
    assert (await looking.told())[0][0][1]["stop_recorded"] is False


async def test_who_cancelled_it_is_waited_for_and_not_for_long(looking: Looking) -> None:
    looking.tables.owe(0, 1)
    looking.client.rows = [row(0, RUNNING), row(1, RUNNING)]
    await looking.look()
    cancelled = queued("CANCELLED", exit="0:15", start=0, end=3)
    looking.client.rows = [row(0, cancelled), row(1, cancelled)]
    told = await looking.told()
    assert [told[number][0][0] for number in (0, 1)] == ["seen_running"] * 2
    looking.client.ended = [past(0, accounted("CANCELLED", start=0, end=3, by=61007))]
    told = await looking.told(after=6)
    assert told[0][0][1]["message"] == "cancelled by uid 61007"
    assert told[1][0][0] == "seen_running"
    told = await looking.told(after=30)
    assert told[1][0][1]["message"] == "cancelled"


async def test_the_next_observer_tells_no_less_of_an_end_that_was_told(looking: Looking) -> None:
    looking.client.rows = [row(0, queued("CANCELLED", exit="0:15", submitted=2, start=2, end=3, restarts=1))]
    looking.client.no_accounting = "slurmdbd is down"
    for _ in range(8):
        assert (await looking.told(after=10))[0] == []
    looking.client.no_accounting = None
    looking.client.ended = [
        past(0, accounted("NODE_FAIL", submitted=0, start=0, end=2)),
        past(0, accounted("CANCELLED", submitted=2, start=2, end=3, by=61007)),
    ]
    (_, segment), (_, end) = (await looking.told(after=10))[0]
    assert (segment["estimated"], end["message"]) == (False, "cancelled by uid 61007")


async def test_a_stop_of_ours_is_told_at_once(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.recorded(0, 2, code=15)
    records.request_stop(str(looking.directory(0)), "stop", "TERM", 0, at(1))
    looking.client.rows = [row(0, queued("CANCELLED", exit="0:15", start=0, end=2))]
    assert (await looking.told())[0][0][1]["stop_recorded"] is True


async def test_what_was_before_a_requeue_is_asked_for_and_does_not_change_back(looking: Looking) -> None:
    looking.tables.owe(0)
    looking.client.rows = [row(0, queued("PENDING", "BeginTime", submitted=5, restarts=1))]
    (_, estimated), _ = (await looking.told())[0]
    assert estimated["estimated"] is True
    looking.client.ended = [past(0, accounted("PREEMPTED", submitted=0, start=1, end=5))]
    (_, segment), _ = (await looking.told(after=6))[0]
    assert (segment["started_at"], segment["raw_reason"]) == (at(1).isoformat(), "PREEMPTED")
    asked = len(looking.client.asked)
    before = await looking.look(after=6)
    for _ in range(3):
        assert (await looking.look(after=6)).submissions[0] is before.submissions[0]
    assert len(looking.client.asked) == asked


async def test_what_can_never_start_is_ended_after_the_grace_and_always_the_same(tmp_path: Path) -> None:
    looking = Looking(tmp_path, stuck_seconds=10)
    looking.tables.owe(0)
    looking.client.rows = [row(0, queued("PENDING", "DependencyNeverSatisfied"))]
    assert (await looking.told())[0][0][0] == "seen_pending"
    assert (await looking.told(after=9))[0][0][0] == "seen_pending"
    first = await looking.look()
    [(end)] = looking.eyes.found(first.submissions)
    assert (end.kind, end.fact["reason"], end.fact["ended_at"]) == ("exited", "configuration", at(12).isoformat())
    assert (await looking.look()).submissions[0] is first.submissions[0]


async def test_the_grace_begins_anew_for_what_was_not_stuck_in_between(tmp_path: Path) -> None:
    looking = Looking(tmp_path, stuck_seconds=10)
    for reason in ("JobHeldUser", "Priority", "JobHeldUser"):
        looking.client.rows = [row(0, queued("PENDING", reason))]
        assert (await looking.told(after=8))[0][0][0] == "seen_pending"


async def test_most_of_them_gone_at_once_is_no_answer_until_accounting_or_a_minute_says_so(looking: Looking) -> None:
    looking.tables.owe(*range(12))
    looking.client.rows = [row(number, RUNNING) for number in range(12)]
    assert len(await looking.alive()) == 12
    looking.client.rows = []
    look = await looking.look()
    assert (look.complete, len(look.submissions)) == (False, 12)
    assert "12 of 12" in (look.problem or "")
    looking.client.ended = [past(number, accounted("COMPLETED", start=0, end=3)) for number in range(12)]
    told = await looking.told(after=6)
    assert {found[0][0] for found in told.values()} == {"exited"}


async def test_a_mass_that_stays_away_is_believed_after_a_minute(looking: Looking) -> None:
    looking.tables.owe(*range(12), last_seen_at=NOON)
    await looking.eyes.begin()
    assert not (await looking.look()).complete
    assert not (await looking.look(after=58)).complete
    look = await looking.look()
    assert (look.complete, look.submissions) == (True, ())


async def test_an_unknown_word_and_a_row_without_its_time_are_alive_and_say_nothing(looking: Looking) -> None:
    looking.tables.owe(0, 1, 2)
    looking.client.rows = [
        row(0, queued("SOMETHING_NEW", start=0)),
        row(1, replace(RUNNING, submitted_at=None)),
        row(2, queued("COMPLETED", exit="0:0", start=0, end=1)),
    ]
    told = await looking.told()
    assert (told[0], told[1], told[2][0][0]) == ([], [], "exited")
    assert await looking.alive() == {0, 1}


async def test_who_is_in_a_row_that_cannot_be_read_is_not_absent(looking: Looking) -> None:
    looking.tables.owe(0, 1)
    looking.client.rows, looking.client.skipped = [row(1, RUNNING)], (f"?|{name(0)}||",)
    assert await looking.alive() == {0, 1}


async def test_orphans_are_told_and_strangers_are_not(looking: Looking) -> None:
    stranger = replace(row(1, RUNNING), comment="mine")
    nasty = replace(row(2, DONE), comment="tidegate/1 t ../../etc")
    looking.client.rows = [row(0, RUNNING), stranger, nasty]
    told = await looking.told()
    assert told.keys() == {0, 2}
    assert told[0][0][1]["tenant"] == "acme"


async def test_what_ended_in_the_lost_time_is_told_from_accounting_after_a_restore(looking: Looking) -> None:
    gone = replace(past(0, accounted("COMPLETED", start=0, end=3)), comment="tidegate/1 t acme")
    looking.client.ended = [gone]
    assert await looking.told() == {}
    looking.restored_since = NOON - timedelta(days=1)
    told = await looking.told(after=6)
    assert [kind for kind, _ in told[0]] == ["exited"]
    assert looking.client.asked[-1] == (NOON - timedelta(days=1, hours=1), None)


async def test_a_submission_that_was_never_told_is_known_by_its_name(looking: Looking) -> None:
    looking.tables.owe(0, submitted=False)
    looking.client.rows = [replace(row(0, RUNNING), comment=None)]
    assert (await looking.told())[0][0][0] == "seen_running"
