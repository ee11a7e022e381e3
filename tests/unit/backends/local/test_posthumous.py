"""Only an end that a kill after a stop request brought about is recorded by others than its supervisor."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.backends.local import ending, layout, posthumous
from shared.backends.local.messages import KillAnswer, KillKind
from tests.unit.backends.local.builders import Records, dead

JOB = "tidegate.j1.a1.s1"
KILLED_AT = "2026-11-30T09:00:09.000Z"
SEEN_AT = datetime(2026, 11, 30, 9, 0, 3, tzinfo=UTC)
ASKED_AT = datetime(2026, 11, 30, 9, 0, 2, 500_000, tzinfo=UTC)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """A command was up and asked to stop; then its supervisor was killed, and its killer died too."""
    records, supervisor = Records(tmp_path), dead()
    records.write(JOB, layout.SPEC)
    records.write(JOB, layout.CLAIM, supervisor=supervisor)
    records.write(JOB, layout.STARTED, supervisor=supervisor)
    records.write(JOB, layout.STOP, at="2026-11-30T09:00:02.500Z")
    records.write(JOB, layout.STOP_SEEN)
    records.write(JOB, layout.KILL, supervisor=supervisor, at=KILLED_AT)
    return records


def kill(records: Records) -> KillAnswer:
    """As another launcher does afterwards."""
    return ending.kill(str(records.root), JOB, 60)


def test_the_end_of_who_was_killed_is_recorded_up_to_the_kill(records: Records) -> None:
    end = kill(records).exit
    assert end is not None
    assert (end.job, end.attempt, end.tenant, end.devices) == ("j1", 1, "acme", (0, 1))
    assert (end.ran, end.code, end.signal, end.reason, end.sentence) == (True, None, 9, None, posthumous.SENTENCE)
    assert (end.stop_seen_at, end.duration_ms) == (SEEN_AT, 7000)
    assert end.ended_at == datetime.fromisoformat(KILLED_AT)


def test_what_was_seen_of_it_after_the_kill_lengthens_it(records: Records) -> None:
    later_ms = round(datetime.fromisoformat(KILLED_AT).timestamp() * 1000) + 1500
    end = posthumous.record_end(str(records.root), JOB, later_ms)
    assert end is not None
    assert end.duration_ms == 8500


def test_a_stop_that_its_supervisor_never_saw_counts_from_the_request(records: Records) -> None:
    records.path(JOB, layout.STOP_SEEN).unlink()
    end = kill(records).exit
    assert end is not None
    assert end.stop_seen_at == ASKED_AT


def test_a_supervisor_that_died_by_itself_after_a_stop_request_leaves_no_end(records: Records) -> None:
    records.path(JOB, layout.KILL).unlink()
    assert kill(records).kind is KillKind.GONE
    assert not records.path(JOB, layout.EXIT).exists()


def test_the_kill_of_another_supervisor_says_nothing_of_this_one(records: Records) -> None:
    records.write(JOB, layout.KILL)
    assert kill(records).kind is KillKind.GONE
    assert not records.path(JOB, layout.EXIT).exists()


def test_a_command_that_was_not_up_has_no_end(records: Records) -> None:
    records.path(JOB, layout.STARTED).unlink()
    assert kill(records).kind is KillKind.GONE


def test_an_end_that_is_there_stays(records: Records) -> None:
    records.write(JOB, layout.EXIT)
    before = records.path(JOB, layout.EXIT).read_bytes()
    assert posthumous.record_end(str(records.root), JOB, None) is not None
    assert records.path(JOB, layout.EXIT).read_bytes() == before


def test_an_end_that_cannot_be_read_stays_too(records: Records) -> None:
    records.tear(JOB, layout.EXIT, keep=20)
    before = records.path(JOB, layout.EXIT).read_bytes()
    assert kill(records).kind is KillKind.GONE
    assert records.path(JOB, layout.EXIT).read_bytes() == before


def test_all_who_find_it_dead_at_once_tell_the_same_end(records: Records) -> None:
    root, later_ms = str(records.root), 2_000_000_000_000
    with ThreadPoolExecutor(8) as launchers:
        told = list(launchers.map(lambda n: posthumous.record_end(root, JOB, later_ms + n), range(8)))
    assert told[0] is not None
    assert len(set(told)) == 1
