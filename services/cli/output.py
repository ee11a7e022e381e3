"""How the CLI prints: colours and width follow the terminal, plain text when piped, JSON when asked."""

import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

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
    out.out(json.dumps(value, indent=2 if out.is_terminal else None, ensure_ascii=False), highlight=False)


def state_text(state: str) -> str:
    """A state in its colour."""
    style = STATE_STYLES.get(state, "")
    return f"[{style}]{state}[/]" if style else state


def duration(seconds: float) -> str:
    """`0.31 s`, `12.3 s`, `4:05`, `2:03:04`."""
    if seconds < 10:
        return f"{max(seconds, 0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: int) -> str:
    """`512 B`, `1.2 kB`, `3.4 MB` (powers of 1000)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def ago(at: datetime) -> str:
    """How long ago an instant was, in one word."""
    return duration((datetime.now(UTC) - at).total_seconds()).removesuffix(" s").split(".")[0] + (
        " s ago" if (datetime.now(UTC) - at).total_seconds() < 60 else " ago"
    )


def table(*columns: str) -> Table:
    """A table without lines, so that it reads well on a terminal and in a file."""
    made = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for column in columns:
        made.add_column(column, no_wrap=True, overflow="ignore")
    return made


def print_table(made: Table) -> None:
    """Print a table; in a pipe no column is cut."""
    if out.is_terminal:
        out.print(made)
    else:
        Console(width=100_000, highlight=False, no_color=True).print(made, soft_wrap=True)
