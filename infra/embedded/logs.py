"""Log files: kept within bounds, and read from their end.

Processes write to their files themselves, not through the supervisor: its death must not stop them, and the runner host
outlives it. So a full file is copied and cut back in place; writers in append mode go on at the new end.
"""

import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

LARGEST_BYTES = 16 * 1024 * 1024
_LOOK_SECONDS = 0.2


def rotate(log: Path, largest_bytes: int = LARGEST_BYTES) -> None:
    """Move a full log to `<log>.1`, over the one before. A line written at that very moment may be lost."""
    try:
        if log.stat().st_size <= largest_bytes:
            return
    except FileNotFoundError:
        return
    older = log.with_name(f"{log.name}.1")
    with log.open("rb") as source, open(os.open(older, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
        shutil.copyfileobj(source, target)
    os.truncate(log, 0)


def last_lines(log: Path, lines: int) -> list[str]:
    """The last lines, also of the file before where the present one is short."""
    found: deque[str] = deque(maxlen=lines)
    for path in (log.with_name(f"{log.name}.1"), log):
        if path.exists():
            with path.open(errors="replace") as file:
                found.extend(line.rstrip("\n") for line in file)
    return list(found)


def follow(log: Path) -> Iterator[str]:
    """Lines as they are written from now on, over rotations, without end."""
    position = log.stat().st_size if log.exists() else 0
    partial = ""
    while True:
        size = log.stat().st_size if log.exists() else 0
        if size < position:
            position, partial = 0, ""
        if size == position:
            time.sleep(_LOOK_SECONDS)
            continue
        with log.open(errors="replace") as file:
            file.seek(position)
            text = partial + file.read()
            position = file.tell()
        *whole, partial = text.split("\n")
        yield from whole
