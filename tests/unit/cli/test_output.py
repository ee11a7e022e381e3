"""Times are said so that they are read at a glance."""

from datetime import UTC, datetime, timedelta

import pytest

from services.cli.output import ago, but_the_state, duration

_NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-2, "0 s ago"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (7200, "2 h ago"),
        (86_400, "1 d ago"),
    ],
)
def test_how_long_ago_is_one_number_with_its_unit(seconds: float, said: str) -> None:
    assert ago(_NOW - timedelta(seconds=seconds), _NOW) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0.00 s"),
        (0.314, "0.31 s"),
        (59.94, "59.9 s"),
        (60, "1 min 00 s"),
        (245.9, "4 min 05 s"),
        (3600, "1 h 00 min"),
        (7384, "2 h 03 min"),
        (273_600, "3 d 04 h"),
    ],
)
def test_a_duration_names_its_units(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_state_is_not_said_twice() -> None:
    assert but_the_state("PAUSED", "paused: by rin") == "by rin"
    assert but_the_state("FAILED", "the command exited with code 3") == "the command exited with code 3"
    assert but_the_state("STOPPED", None) == ""
