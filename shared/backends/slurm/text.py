"""The text of squeue, sacct and sinfo: rows, words, exit codes, times. Reading never raises.

The commands are asked to end each field with a separator that is random for each call. So no name or comment, whatever
is in it (`|`, a line feed, a whole forged row), is taken for another field or another job.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from shared.backends.slurm.rows import ExitStatus

_NOTHING: Final = frozenset({"", "n/a", "unknown", "none", "(null)", "null", "none assigned", "not_set", "invalid"})

STATES: Final = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "COMPLETING",
        "CONFIGURING",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PENDING",
        "POWER_UP_NODE",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESIZING",
        "RESV_DEL_HOLD",
        "REVOKED",
        "RUNNING",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "TIMEOUT",
        "UPDATE_DB",
    )
)
"""Slurm's documented words for a job's state (squeue(1), sacct(1)): only to complete one that was cut."""

_CANCELLED_BY = re.compile(r"cancelled by ([0-9]{1,10})", re.IGNORECASE)
_PAIR = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
_DURATION = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{1,2})(?:\.[0-9]+)?")
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
# The year 9999: later than that Python has no datetime.
_EPOCH_MAX = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Table:
    """The rows below the header, each with as many fields as were asked for."""

    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class State:
    """A state's first word in upper case. `cancelled_by` is the uid of `CANCELLED by <uid>`."""

    word: str
    cancelled_by: int | None = None
    completing: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, or None for none. `doubtful`: there was text, but it stands for two times of a day, or for none."""

    at: datetime | None
    doubtful: bool = False


def separator() -> str:
    return f"@{secrets.token_hex(6)}@"


def table(text: str, ends_with: str, titles: tuple[str, ...]) -> Table | str:
    """The rows of a whole answer, or the reason why it is none: no header, or one that was cut.

    A header is always asked for: it proves an answer of no rows to be an answer.
    """
    width = len(titles)
    fields = text.split(ends_with)
    if len(fields) <= width or fields[1].strip().upper() != titles[1].upper():
        return "its answer has no header"
    if (len(fields) - 1) % width:
        return "its answer was cut short"
    # The line feed that ends a row stands before the first field of the next one.
    rows = [
        (fields[start].removeprefix("\n"), *fields[start + 1 : start + width])
        for start in range(width, len(fields) - 1, width)
    ]
    return Table(tuple(rows))


def something(text: str) -> str | None:
    """`text` without blanks around it, or None for one of Slurm's words for nothing."""
    stripped = text.strip()
    return None if stripped.lower() in _NOTHING else stripped


def state(text: str) -> State | None:
    """The state that the text says. A word that was cut (`OUT_OF_ME+`) is completed where that is certain."""
    words = text.split()
    if not words:
        return None
    word, *flags = words[0].upper().split("+")
    if not word:
        return None
    if flags == [""] and word not in STATES:
        whole = [known for known in STATES if known.startswith(word)]
        word = whole[0] if len(whole) == 1 else f"{word}+"
    by = _CANCELLED_BY.match(text.strip())
    return State(word, int(by[1]) if by else None, word == "COMPLETING" or "COMPLETING" in flags)


def exit_pair(text: str) -> ExitStatus | None:
    """`code:signal` as sacct and scontrol print it."""
    match = _PAIR.fullmatch(text.strip())
    return ExitStatus(int(match[1]), int(match[2])) if match else None


def exit_status(text: str) -> ExitStatus | None:
    """What squeue prints: the raw status of wait(2), so 768 for exit 3; also a pair."""
    number = whole_number(text)
    if number is None or number > 0xFFFF:
        return exit_pair(text)
    signal = number & 0x7F
    return ExitStatus(0 if signal else number >> 8, signal)


def whole_number(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() and len(stripped) <= 15 else None


def duration(text: str) -> timedelta | None:
    """`[days-][hours:]minutes:seconds`, or plain seconds."""
    seconds = whole_number(text)
    if seconds is not None:
        return timedelta(seconds=min(seconds, _EPOCH_MAX))
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=rest)


def moment(text: str, zone: ZoneInfo | None) -> Moment:
    """Epoch seconds, which the commands are asked for; 0 is none. A local time needs the cluster's `zone`.

    A local time that the clocks of the zone showed twice is the earlier one, doubtful; one that they skipped likewise.
    """
    word = something(text)
    if word is None:
        return Moment(None)
    seconds = whole_number(word)
    if seconds is not None:
        return Moment(datetime.fromtimestamp(seconds, UTC)) if 0 < seconds <= _EPOCH_MAX else Moment(None, seconds != 0)
    if zone is None or not _LOCAL.fullmatch(word):
        return Moment(None, doubtful=True)
    try:
        local = datetime.fromisoformat(word).replace(tzinfo=zone)
        at = local.astimezone(UTC)
        certain = local.utcoffset() == local.replace(fold=1).utcoffset()
    except (ValueError, OverflowError):
        return Moment(None, doubtful=True)
    return Moment(at, doubtful=not certain) if at.timestamp() > 0 else Moment(None)


def doubtful(**moments: Moment) -> tuple[str, ...]:
    """The names of those that stand for no certain time."""
    return tuple(name for name, moment in moments.items() if moment.doubtful)
