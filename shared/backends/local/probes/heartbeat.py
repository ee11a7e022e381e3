"""Heartbeat: a file that programs touch to say that they are at work, however quietly."""

from __future__ import annotations

import os
from collections.abc import Callable

from shared.backends.local.probes.probe import Watched


class Heartbeat:
    """Active when the file was last modified."""

    name = "heartbeat"

    def __init__(self, modified_ms: Callable[[], int | None]) -> None:
        self._modified_ms = modified_ms

    def look(self, at_ms: int) -> int | None:
        """Not later than now: a time stamp of tomorrow would keep it from ever being idle."""
        modified = self._modified_ms()
        return None if modified is None else min(modified, at_ms)


def make(watched: Watched) -> Heartbeat:
    """The file that TIDEGATE_HEARTBEAT names."""
    return Heartbeat(lambda: modified_ms(watched.heartbeat))


def modified_ms(path: str) -> int | None:
    """None where there is no such file; a link is not followed."""
    try:
        return os.lstat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
