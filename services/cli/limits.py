"""Time limits, signals, graces and retries of `submit`: read from their options, and said back in words."""

import re
from typing import Final, NamedTuple, cast, get_args

import typer

from shared.contracts.durations import GRAMMAR_WITH_UNITS, in_words, parse_duration
from shared.contracts.spec import JobSpec
from shared.lifecycle.explain import CHECKPOINT_GRACE_SECONDS, grace_in_words
from shared.lifecycle.record import Signal

LONGEST_GRACE_SECONDS: Final = 86_400
_SIGNALS: Final = get_args(Signal)


class Warn(NamedTuple):
    """A signal, and how long before the time limit it is sent."""

    signal: Signal
    seconds: int


def time_limit(text: str) -> int:
    """The seconds of `--time-limit`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def grace(text: str, *, least: int = 1) -> int:
    """The seconds of a grace, and of what a warning is before a limit: a bare number is seconds."""
    seconds = f"{text}s" if re.fullmatch("[0-9]{1,15}", text) else text
    try:
        forms = f"30 (seconds), {GRAMMAR_WITH_UNITS}"
        return parse_duration(seconds, least=least, most=LONGEST_GRACE_SECONDS, forms=forms)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def stop_grace(text: str) -> int:
    """The seconds of `stop --grace`, where 0, in whatever form, is none."""
    return grace(text, least=0)


def snooze(text: str) -> int:
    """The seconds of a snooze. A bare number is refused: it may be meant as minutes."""
    if re.fullmatch("[0-9]{1,9}", text) and int(text):
        raise typer.BadParameter(f"{text!r} has no unit: give {text}s or {text}m")
    try:
        return parse_duration(text, most=LONGEST_GRACE_SECONDS, forms=GRAMMAR_WITH_UNITS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def signal(text: str) -> Signal:
    """A signal's name, with or without SIG, in any case."""
    name = text.upper().removeprefix("SIG")
    if name not in _SIGNALS:
        raise typer.BadParameter(f"{text!r} is no signal for this: give one of {', '.join(_SIGNALS)}")
    return cast(Signal, name)


def warn(text: str) -> Warn:
    """`SIGNAL@TIME`: the signal that is sent so long before the time limit."""
    name, mark, before = text.partition("@")
    if not mark:
        raise typer.BadParameter(f"{text!r} says not when: give SIGNAL@TIME, such as {text or 'USR1'}@5m")
    return Warn(signal(name), grace(before))


def warning(given: Warn | None, time_limit_seconds: int | None) -> dict[str, object]:
    """The spec's fields of a warning; refused where it would never come."""
    if given is None:
        return {}
    if time_limit_seconds is None:
        raise typer.BadParameter("--warn is sent before the time limit, and none was given: add --time-limit TIME")
    if given.seconds >= time_limit_seconds:
        raise typer.BadParameter(
            f"--warn {in_words(given.seconds)} before a time limit of {in_words(time_limit_seconds)} would come before "
            "it runs: give a shorter time, or a longer --time-limit"
        )
    return {"warning_signal": given.signal, "warning_seconds": given.seconds}


def said(spec: JobSpec, retries: int | None, *, defaults: bool = False) -> list[str]:
    """What was asked for, in words; of what was left out only what a pause does, with `defaults`."""
    lines = []
    if spec.time_limit_seconds is not None:
        killed = f"SIGTERM, killed {grace_in_words(spec.stop_grace_seconds)} later"
        line = f"time limit {in_words(spec.time_limit_seconds)}: {killed}"
        if spec.warning_signal is not None:
            line += f"; {spec.warning_signal} is sent {in_words(spec.warning_seconds)} before it"
        lines.append(line)
    if spec.stop_grace_seconds is not None:
        lines.append(f"a stop gives it {in_words(spec.stop_grace_seconds)}")
    grace = spec.checkpoint_grace_seconds
    if spec.checkpoint_signal != "TERM" or grace is not None or defaults:
        gives = f"{CHECKPOINT_GRACE_SECONDS} s (by default)" if grace is None else in_words(grace)
        lines.append(f"a pause sends {spec.checkpoint_signal} and gives it {gives}")
    if retries:
        times = "once" if retries == 1 else f"up to {retries} times"
        lines.append(f"retried {times} if it fails by itself")
    return lines
