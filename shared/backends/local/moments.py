"""Points in time as records hold them: RFC 3339, UTC, milliseconds."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds on a clock that nobody sets: for durations, within one boot."""
    return time.monotonic_ns() // 1_000_000


def utc(milliseconds: int) -> str:
    """2026-11-30T09:00:00.000Z"""
    seconds, rest = divmod(milliseconds, 1000)
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{rest:03d}Z"
