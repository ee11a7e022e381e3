"""Where the time comes from. Pure code takes the time as an argument; only `app.py` and handlers hold a clock."""

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)


class FixedClock:
    """A clock for tests: it stands still until it is told otherwise."""

    def __init__(self, now: datetime) -> None:
        self.set(now)

    def now(self) -> datetime:
        """The time last set."""
        return self._now

    def set(self, now: datetime) -> None:
        """Jump to `now`; a naive time is refused, because nobody knows which instant it means."""
        if now.tzinfo is None:
            raise ValueError(f"{now!r} has no time zone; give an aware datetime, for example datetime(…, tzinfo=UTC)")
        self._now = now.astimezone(UTC)

    def advance(self, by: timedelta) -> None:
        """Move on by `by`."""
        self._now += by
