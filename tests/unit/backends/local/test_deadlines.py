"""When a command is warned, asked to end and killed, whatever comes first."""

import pytest

from shared.backends.local.deadlines import Deadlines, Due

START = 1_000_000
SECOND = 1000


def of_a_command(limit: float | None = None, warning: float | None = None, grace: int = 10) -> Deadlines:
    """Started at START."""
    return Deadlines(START, limit, grace * SECOND, warning)


def told(deadlines: Deadlines, *seconds: float) -> list[Due | None]:
    """What is due at each of these seconds after the start."""
    return [deadlines.due(START + int(second * SECOND)) for second in seconds]


def test_without_limit_or_stop_nothing_is_ever_due() -> None:
    deadlines = of_a_command()
    assert told(deadlines, 0, 1e6) == [None, None]
    assert deadlines.next_ms() is None


def test_warns_once_then_asks_then_kills_until_nothing_is_left() -> None:
    deadlines = of_a_command(limit=100, warning=30)
    assert told(deadlines, 69, 70, 71, 99) == [None, Due.WARN, None, None]
    assert told(deadlines, 100, 101, 109) == [Due.LIMIT, None, None]
    assert told(deadlines, 110, 110.05, 110.2) == [Due.KILL, None, Due.KILL]
    assert deadlines.over_limit


@pytest.mark.parametrize(("limit", "warning", "at"), [(60, 60, 30), (10, 60, 5), (61, 60, 1)])
def test_a_limit_no_longer_than_the_warning_is_warned_of_at_its_half(limit: float, warning: float, at: float) -> None:
    assert told(of_a_command(limit, warning), at - 0.1, at) == [None, Due.WARN]


def test_a_supervisor_that_was_frozen_over_both_asks_for_the_end_and_does_not_warn() -> None:
    deadlines = of_a_command(limit=100, warning=30)
    assert told(deadlines, 500, 501) == [Due.LIMIT, None]


@pytest.mark.parametrize("pausing", [False, True])
def test_a_limit_that_passes_within_a_stops_grace_means_nothing(pausing: bool) -> None:
    deadlines = of_a_command(limit=100, warning=30)
    assert deadlines.ask(START + 50 * SECOND, 100 * SECOND, pausing=pausing)
    assert told(deadlines, 70, 100, 149, 150) == [None, None, None, Due.KILL]
    assert not deadlines.over_limit


def test_a_stop_after_the_limit_only_shortens_its_grace() -> None:
    deadlines = of_a_command(limit=100, grace=60)
    assert told(deadlines, 100) == [Due.LIMIT]
    assert deadlines.ask(START + 101 * SECOND, 600 * SECOND, pausing=False)
    assert deadlines.next_ms() == START + 160 * SECOND
    assert deadlines.ask(START + 102 * SECOND, 0, pausing=False)
    assert told(deadlines, 102) == [Due.KILL]
    assert deadlines.over_limit


def test_a_pause_after_the_limit_is_not_told() -> None:
    deadlines = of_a_command(limit=100)
    assert told(deadlines, 100) == [Due.LIMIT]
    assert not deadlines.ask(START + 101 * SECOND, 0, pausing=True)
    assert told(deadlines, 102) == [None]


def test_a_stop_after_a_pause_has_a_grace_of_its_own_even_where_it_is_longer() -> None:
    deadlines = of_a_command()
    assert deadlines.ask(START, 60 * SECOND, pausing=True)
    assert deadlines.ask(START + SECOND, 600 * SECOND, pausing=False)
    assert told(deadlines, 60, 600, 601) == [None, None, Due.KILL]


def test_a_pause_after_a_stop_is_not_told_and_shortens_nothing() -> None:
    deadlines = of_a_command()
    assert deadlines.ask(START, 60 * SECOND, pausing=False)
    assert not deadlines.ask(START + SECOND, 0, pausing=True)
    assert told(deadlines, 59, 60) == [None, Due.KILL]


@pytest.mark.parametrize("pausing", [False, True])
def test_of_two_alike_the_shorter_grace_counts(pausing: bool) -> None:
    deadlines = of_a_command()
    deadlines.ask(START, 60 * SECOND, pausing=pausing)
    deadlines.ask(START, 600 * SECOND, pausing=pausing)
    assert deadlines.next_ms() == START + 60 * SECOND
    deadlines.ask(START, 5 * SECOND, pausing=pausing)
    assert deadlines.next_ms() == START + 5 * SECOND
