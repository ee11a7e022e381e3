"""Durations as people give them: Slurm's forms of a time limit, and units. Every text is either a positive number of
seconds or refused; none means "no limit".

Slurm's forms are those of `sbatch --time`: minutes, minutes:seconds, hours:minutes:seconds, days-hours,
days-hours:minutes, days-hours:minutes:seconds.
"""

import re
from typing import Final

from shared.contracts.snapshot import shown
from shared.contracts.spec import MAX_TIME_LIMIT_SECONDS

GRAMMAR_WITH_UNITS: Final = (
    "45s, 30m, 8h, 2d, 1h30m, 5:30 (min:s), 1:30:00 (h:min:s), 2-12 (d-h), 2-12:30 or 2-12:30:00"
)
GRAMMAR: Final = f"90 (minutes), {GRAMMAR_WITH_UNITS}"
"""Every form, as it is shown to whoever gave another one; the first is for options whose bare number is no minutes."""

_NUMBER: Final = "[0-9]{1,15}"
_SLURM: Final = re.compile(
    rf"(?P<days>{_NUMBER})-(?P<h>{_NUMBER})(?::(?P<m>{_NUMBER})(?::(?P<s>{_NUMBER}))?)?"
    rf"|(?P<hours>{_NUMBER}):(?P<hm>{_NUMBER}):(?P<hs>{_NUMBER})"
    rf"|(?P<minutes>{_NUMBER})(?::(?P<ms>{_NUMBER}))?"
)
_UNITS: Final = re.compile(
    rf"(?=[0-9])(?:(?P<d>{_NUMBER})d)?(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?"
)
_LENGTHS: Final = {"days": 86_400, "d": 86_400, "hours": 3600, "h": 3600, "minutes": 60, "m": 60, "hm": 60}
_BELOW: Final = {"h": 24, "m": 60, "hm": 60, "s": 60, "ms": 60, "hs": 60}
"""What a part that follows a larger one stays below: 1:90:00 is rather a slip than two and a half hours."""
_NAMES: Final = {"h": "hours", "m": "minutes", "hm": "minutes", "s": "seconds", "ms": "seconds", "hs": "seconds"}


def parse_duration(text: str, *, least: int = 1, most: int = MAX_TIME_LIMIT_SECONDS, forms: str = GRAMMAR) -> int:
    """Seconds, `least` (0 or 1) to `most`. ValueError with a sentence for everything else, whatever was given; `forms`
    are those that it tells of."""
    match = _UNITS.fullmatch(text) or _SLURM.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(text)} is no duration: give it as {forms}")
    parts = {name: int(number) for name, number in match.groupdict().items() if number is not None}
    for name in list(parts)[1:]:
        if parts[name] >= _BELOW[name]:
            right = f"after a larger part there are less than {_BELOW[name]}"
            raise ValueError(f"{shown(text)} has {parts[name]} {_NAMES[name]}: {right}")
    seconds = sum(number * _LENGTHS.get(name, 1) for name, number in parts.items())
    if seconds < least:
        raise ValueError(f"{shown(text)} is no time at all: the least is 1s")
    if seconds > most:
        raise ValueError(f"{shown(text)} is {in_words(seconds)}: the most is {in_words(most)}")
    return seconds


def in_words(seconds: int) -> str:
    """`45 s`, `1 h 30 min`, `2 d 12 h`: exact, without the parts that are zero."""
    parts = []
    rest = seconds
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"
