"""A duration is a positive number of seconds by one exact grammar, or refused; nothing means "no limit"."""

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.contracts.durations import in_words, parse_duration
from shared.contracts.spec import MAX_TIME_LIMIT_SECONDS

SECONDS = st.integers(min_value=1, max_value=MAX_TIME_LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("45s", 45),
        ("30m", 1800),
        ("8h", 28_800),
        ("2d", 172_800),
        ("1h30m", 5400),
        ("1d12h30m15s", 131_415),
        ("1d15s", 86_415),
        ("90m", 5400),
        ("5:30", 330),
        ("90:00", 5400),
        ("1:30:00", 5400),
        ("36:00:00", 129_600),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-12:30:05", 217_805),
        ("0-0:01", 60),
        ("007", 420),
    ],
)
def test_every_form_is_read_as_slurm_and_the_units_say(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unlimited", "'unlimited' is no duration: give it as 90 (minutes)"),
        ("", "'' is no duration"),
        ("-5", "'-5' is no duration"),
        ("1.5h", "is no duration"),
        ("30 m", "is no duration"),
        ("30m\n", r"'30m\n' is no duration"),
        ("30M", "is no duration"),
        ("1m1h", "is no duration"),
        ("1h1h", "is no duration"),
        ("1:2:3:4", "is no duration"),
        ("1-", "is no duration"),
        ("٣", "is no duration"),
        ("0", "'0' is no time at all: the least is 1s"),
        ("0:00:00", "the least is 1s"),
        ("1:90:00", "'1:90:00' has 90 minutes: after a larger part there are less than 60"),
        ("1-24", "has 24 hours: after a larger part there are less than 24"),
        ("1h60m", "has 60 minutes"),
        ("5:60", "has 60 seconds"),
        ("3651d", "'3651d' is 3651 d: the most is 3650 d"),
    ],
)
def test_what_is_not_right_is_refused_with_what_is(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_duration(text)


def test_the_most_may_be_less() -> None:
    assert parse_duration("1d", most=86_400) == 86_400
    with pytest.raises(ValueError, match=r"'25h' is 1 d 1 h: the most is 1 d"):
        parse_duration("25h", most=86_400)


def written(seconds: int) -> dict[str, str]:
    """A number of seconds in every form that can say it."""
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    d, h = divmod(hours, 24)
    forms = {
        "units": "".join(f"{n}{unit}" for n, unit in ((d, "d"), (h, "h"), (m, "m"), (s, "s")) if n),
        "one unit": f"{seconds}s",
        "minutes:seconds": f"{minutes}:{s:02}",
        "hours:minutes:seconds": f"{hours}:{m:02}:{s:02}",
        "days-hours:minutes:seconds": f"{d}-{h:02}:{m:02}:{s:02}",
    }
    if s == 0:
        forms |= {"minutes": str(minutes), "days-hours:minutes": f"{d}-{h}:{m}"}
        if m == 0:
            forms |= {"days-hours": f"{d}-{h}"}
    return forms


@given(SECONDS)
@example(86_400)
@example(MAX_TIME_LIMIT_SECONDS)
def test_every_form_of_a_duration_says_the_same(seconds: int) -> None:
    forms = written(seconds)
    assert {name: parse_duration(text) for name, text in forms.items()} == dict.fromkeys(forms, seconds)


@given(SECONDS)
def test_words_say_it_exactly(seconds: int) -> None:
    assert parse_duration(in_words(seconds).replace("min", "m").replace(" ", "")) == seconds


@given(st.one_of(st.text(), st.text(alphabet=string.digits + "dhms:-. +∞", max_size=12)))
@example("infinite")
@example("UNLIMITED")
@example("None")
@example("-1")
@example("1e9")
def test_whatever_is_given_is_a_bounded_time_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 1 <= seconds <= MAX_TIME_LIMIT_SECONDS
    assert text[0] in string.digits


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (45, "45 s"), (5400, "1 h 30 min"), (216_000, "2 d 12 h"), (3661, "1 h 1 min 1 s")],
)
def test_words_leave_out_what_is_zero(seconds: int, words: str) -> None:
    assert in_words(seconds) == words
