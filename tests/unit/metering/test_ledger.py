"""What a reading of a segment does to the ledger."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.metering.domain import UNKNOWN, Change, Known, Reading, change, newest
from services.metering.handlers import carries_segments

START = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def a_reading(seq: int = 1, *, minutes: int | None = 30, epoch: int = 1, **fields: Any) -> Reading:
    """One GPU from ten o'clock on, for so many minutes; None: it runs still."""
    ended = None if minutes is None else START + timedelta(minutes=minutes)
    values: dict[str, Any] = {
        "job": "j1",
        "attempt": 1,
        "submission": "s1",
        "restart": 0,
        "epoch": epoch,
        "seq": seq,
        "tenant": "acme",
        "user": "rin",
        "project": "default",
        "coretype": "local",
        "gpus": 1,
        "started_at": START,
        "ended_at": ended,
        "ended": None if ended is None else "exited",
        "suspended_ms": 0,
        "gpu_milliseconds": None if minutes is None else minutes * 60_000,
        "estimated": False,
        "billable": True,
    }
    return Reading(**{**values, **fields})


def after(done: Change) -> Known:
    """What the slice has once a change is written."""
    return Known(done.reading.version, done.revision, done.line)


def changed(known: Known, reading: Reading) -> Change:
    done = change(known, reading)
    assert done is not None, "the reading is newer"
    return done


def test_a_segment_that_runs_has_no_line() -> None:
    done = changed(UNKNOWN, a_reading(minutes=None))
    assert (done.line, done.lines, done.revision) == (None, (), 0)


def test_an_end_gives_one_line_and_news_that_change_nothing_give_none() -> None:
    done = changed(UNKNOWN, a_reading(seq=2))
    [line] = done.lines
    assert (line.id, line.gpu_milliseconds) == ("j1/1/s1/0/1", 1_800_000)
    again = changed(after(done), a_reading(seq=3))
    assert (again.lines, again.line) == ((), line)


@pytest.mark.parametrize("what", [{"minutes": 40}, {"billable": False}, {"estimated": True}, {"gpus": 2}], ids=str)
def test_a_correction_takes_the_line_back_and_adds_the_right_one(what: dict[str, Any]) -> None:
    first = changed(UNKNOWN, a_reading(seq=2))
    done = changed(after(first), a_reading(seq=3, **what))
    back, right = done.lines
    assert (back.id, back.gpu_milliseconds) == ("j1/1/s1/0/1/reversed", -1_800_000)
    assert (right.id, right.revision) == ("j1/1/s1/0/2", 2)
    assert done.line == right


def test_a_line_that_was_taken_back_is_followed_by_a_new_revision() -> None:
    first = changed(UNKNOWN, a_reading(seq=2))
    open_again = changed(after(first), a_reading(seq=3, minutes=None))
    assert [line.kind for line in open_again.lines] == ["reversal"]
    done = changed(after(open_again), a_reading(seq=4))
    assert [line.id for line in done.lines] == ["j1/1/s1/0/2"]


@pytest.mark.parametrize(("epoch", "seq"), [(1, 5), (1, 4)], ids=["the same version", "an older one"])
def test_what_is_not_newer_changes_nothing(epoch: int, seq: int) -> None:
    assert change(Known((1, 5), 1, None), a_reading(epoch=epoch, seq=seq)) is None


def test_a_higher_epoch_is_newer_whatever_its_seq() -> None:
    assert change(Known((1, 5), 0, None), a_reading(epoch=2, seq=1)) is not None


def test_of_a_batch_the_newest_reading_of_each_segment_counts() -> None:
    older, newer = a_reading(seq=1, minutes=None), a_reading(seq=2)
    other = a_reading(seq=1, restart=1)
    assert list(newest([newer, older, other]).values()) == [newer, other]


def test_an_end_before_the_start_is_a_skewed_clock() -> None:
    assert a_reading(minutes=-5, gpu_milliseconds=0).skewed
    assert not a_reading().skewed


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b'{"job": {"attempts": [{"number": 1}]}}', False),
        (b'{"job": {"attempts": [{"segments": [{}]}]}}', True),
        (b'{"job": {"attempts": [{}]}, "corrected": [{}]}', True),
        (b'{"job": 7}', True),
        (b"[]", True),
    ],
)
def test_only_events_with_segments_are_read_and_whatever_is_no_event(body: bytes, read: bool) -> None:
    assert carries_segments(body) is read
