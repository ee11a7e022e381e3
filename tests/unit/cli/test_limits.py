"""Limits and graces of `submit`: refused with what is right, and said back as they were understood."""

from collections.abc import Callable

import pytest
import typer

from services.cli import limits
from shared.contracts.spec import JobSpec


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, []),
        ({"time_limit_seconds": 5400}, ["time limit 1 h 30 min: SIGTERM, killed 10 s (by default) later"]),
        (
            {"time_limit_seconds": 5400, "warning_signal": "USR1", "warning_seconds": 300},
            ["time limit 1 h 30 min: SIGTERM, killed 10 s (by default) later; USR1 is sent 5 min before it"],
        ),
        ({"stop_grace_seconds": 30}, ["a stop gives it 30 s"]),
        (
            {"time_limit_seconds": 60, "stop_grace_seconds": 30},
            ["time limit 1 min: SIGTERM, killed 30 s later", "a stop gives it 30 s"],
        ),
        (
            {"checkpoint_signal": "USR2", "checkpoint_grace_seconds": 120},
            ["a pause sends USR2 and gives it 2 min"],
        ),
    ],
)
def test_limits_are_said_back_in_words(given: dict[str, object], said: list[str]) -> None:
    assert limits.said(JobSpec.model_validate({"command": ["true"]} | given), None) == said


def test_what_a_pause_gives_by_default_is_said_where_that_is_asked_for() -> None:
    said = limits.said(JobSpec(command=("true",)), None, defaults=True)
    assert said == ["a pause sends TERM and gives it 60 s (by default)"]


def test_retries_are_said_back() -> None:
    spec = JobSpec(command=("true",))
    assert limits.said(spec, 0) == []
    assert limits.said(spec, 1) == ["retried once if it fails by itself"]
    assert limits.said(spec, 3) == ["retried up to 3 times if it fails by itself"]


@pytest.mark.parametrize(
    ("text", "signal", "seconds"), [("USR1@5m", "USR1", 300), ("sigterm@1:30", "TERM", 90), ("USR1@60", "USR1", 60)]
)
def test_a_warning_is_a_signal_and_a_time(text: str, signal: str, seconds: int) -> None:
    assert limits.warn(text) == (signal, seconds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USR1", "'USR1' says not when: give SIGNAL@TIME, such as USR1@5m"),
        ("KILL@5m", "'KILL' is no signal for this: give one of TERM, INT, HUP, USR1, USR2"),
        ("USR1@2d", "'2d' is 2 d: the most is 1 d"),
    ],
)
def test_a_warning_that_is_not_right_is_refused(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        limits.warn(text)
    assert str(refused.value) == said


def test_a_warning_that_would_never_come_is_refused() -> None:
    warn = limits.Warn("USR1", 300)
    assert limits.warning(warn, 301) == {"warning_signal": "USR1", "warning_seconds": 300}
    assert limits.warning(None, None) == {}
    for limit, said in ((None, "none was given"), (300, "would come before it runs")):
        with pytest.raises(typer.BadParameter, match=said):
            limits.warning(warn, limit)


@pytest.mark.parametrize("read", [limits.grace, limits.stop_grace])
def test_a_bare_number_of_a_grace_is_seconds(read: Callable[[str], int]) -> None:
    assert [read(text) for text in ("30", "2m", "1:30", "86400")] == [30, 120, 90, 86_400]


def test_a_snooze_needs_a_unit() -> None:
    assert limits.snooze("30m") == 1800
    for text, said in (("30", "'30' has no unit: give 30s or 30m"), ("x", "'x' is no duration: give it as 45s, ")):
        with pytest.raises(typer.BadParameter, match=said):
            limits.snooze(text)


@pytest.mark.parametrize("text", ["0", "00", "0s", "0m", "0:00"])
def test_only_a_stop_may_have_no_grace(text: str) -> None:
    assert limits.stop_grace(text) == 0
    with pytest.raises(typer.BadParameter, match="is no time at all: the least is 1s"):
        limits.grace(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "'x' is no duration: give it as 30 (seconds), 45s, 30m, 8h, "),
        ("-5", "'-5' is no duration: give it as 30 (seconds), "),
        ("86401", "'86401s' is 1 d 1 s: the most is 1 d"),
        ("25h", "'25h' is 1 d 1 h: the most is 1 d"),
    ],
)
def test_a_grace_of_a_stop_that_is_not_right_is_refused_in_its_own_forms(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        limits.stop_grace(text)
    assert str(refused.value).startswith(said)
    assert "minutes" not in str(refused.value)
