"""How the CLI prints: colours and width follow the terminal, plain text when piped, JSON when asked."""

import os
import sys
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from rich.console import Console

from services.cli.escapes import json_text

EXIT_NO_READER: Final = 141
"""128 + SIGPIPE, as a shell shows it for a command whose reader went away."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        _no_reader(sys.stderr.fileno() if self.stderr else sys.stdout.fileno())


def _no_reader(descriptor: int) -> NoReturn:
    # What is still buffered goes nowhere, or the interpreter would complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise SystemExit(EXIT_NO_READER)


out = _Console(highlight=False, soft_wrap=True, emoji=False)
err = _Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

STATE_STYLES = {
    "QUEUED": "yellow",
    "SUBMITTED": "cyan",
    "PENDING": "cyan",
    "RUNNING": "bold blue",
    "PAUSED": "magenta",
    "SUCCEEDED": "bold green",
    "FAILED": "bold red",
    "STOPPED": "red",
}


def print_json(value: Any) -> None:
    """The API's own objects, one document."""
    write(json_text(value, indent=2 if out.is_terminal else None) + "\n")


def write(data: str | bytes) -> None:
    """Print text or bytes as they are, at once."""
    try:
        if isinstance(data, bytes):
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        _no_reader(sys.stdout.fileno())


def state_text(state: str) -> str:
    """A state in its colour."""
    style = STATE_STYLES.get(state, "")
    return f"[{style}]{state}[/]" if style else state


def but_the_state(state: str, message: str | None) -> str:
    """A message that follows the state's own word, without repeating it: `by rin at …` of `paused: by rin at …`."""
    said = message or ""
    return said[len(state) + 2 :] if said.lower().startswith(f"{state.lower()}: ") else said


def duration(seconds: float) -> str:
    """`0.31 s`, `12.3 s`, `4 min 05 s`, `2 h 03 min`, `3 d 04 h`."""
    if seconds < 10:
        return f"{max(seconds, 0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for length, unit, part, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part:02} {smaller}"
    raise AssertionError("a minute and more has a unit")


def size(count: int) -> str:
    """`512 B`, `1.2 kB`, `3.4 MB` (powers of 1000)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def ago(at: datetime, now: datetime | None = None) -> str:
    """How long ago an instant was: `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`."""
    seconds = max(int(((now or datetime.now(UTC)) - at).total_seconds()), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"
