"""Absence is time between complete observations that both show nothing."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.watcher.absence import LONGEST_GAP, Absences

START = datetime(2026, 11, 30, 9, tzinfo=UTC)
KEY = ("j1", 1)
EXPECTED = {KEY: START}


def at(seconds: float) -> datetime:
    """An instant."""
    return START + timedelta(seconds=seconds)


def test_lost_after_so_many_seconds_of_looking() -> None:
    absences = Absences(timedelta(seconds=10))
    assert all(absences.observed(at(second), set(), EXPECTED) == set() for second in range(10))
    assert absences.observed(at(10), set(), EXPECTED) == {KEY}


def test_a_sighting_starts_the_count_anew() -> None:
    absences = Absences(timedelta(seconds=10))
    for second in range(9):
        absences.observed(at(second), set(), EXPECTED)
    absences.observed(at(9), {KEY}, EXPECTED)
    assert all(absences.observed(at(second), set(), EXPECTED) == set() for second in range(10, 20))
    assert absences.observed(at(20), set(), EXPECTED) == {KEY}


def test_observations_before_the_acceptance_do_not_count() -> None:
    absences = Absences(timedelta(seconds=10))
    later = {KEY: at(30)}
    assert all(absences.observed(at(second), set(), later) == set() for second in range(40))
    assert absences.observed(at(40), set(), later) == {KEY}


def test_a_clock_that_jumps_forward_loses_nobody() -> None:
    absences = Absences(timedelta(seconds=10))
    absences.observed(at(0), set(), EXPECTED)
    assert absences.observed(at(86_400), set(), EXPECTED) == set()


def test_a_clock_that_jumps_back_loses_nobody() -> None:
    absences = Absences(timedelta(seconds=10))
    absences.observed(at(86_400), set(), EXPECTED)
    assert absences.observed(at(0), set(), EXPECTED) == set()


@given(st.lists(st.tuples(st.floats(0.1, 20), st.sampled_from(["empty", "there", "blind"])), max_size=60))
def test_never_lost_before_that_much_time_was_really_looked_at(looks: list[tuple[float, str]]) -> None:
    limit = timedelta(seconds=30)
    absences = Absences(limit)
    now, looked_at, before = START, timedelta(0), None
    for gap, what in looks:
        now += timedelta(seconds=gap)
        if what == "blind":
            absences.blind()
            before = None
            continue
        if what == "there":
            looked_at, before = timedelta(0), None
            assert absences.observed(now, {KEY}, EXPECTED) == set()
            continue
        if before is not None and now - before <= LONGEST_GAP:
            looked_at += now - before
        before = now
        lost = absences.observed(now, set(), EXPECTED)
        assert (KEY in lost) == (looked_at >= limit)
