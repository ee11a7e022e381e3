"""Whether the silence of a cluster says anything: not while nobody could be heard."""

from collections.abc import Callable
from datetime import datetime, timedelta

from shared.runtime.clock import Clock


class Hearing:
    """Blind time does not count: silence is the cluster's own once the broker has been there for as long as a cluster
    may be silent. Else every outage of the broker would tell all who wait of a silence, and then of its end."""

    def __init__(self, connected: Callable[[], bool], clock: Clock, silent_after: timedelta) -> None:
        self._connected = connected
        self._clock = clock
        self._silent_after = silent_after
        self._deaf_at: datetime | None = None

    def hears(self) -> bool:
        """Asked every second: whether it has been connected for so long."""
        now = self._clock.now()
        if self._deaf_at is None or not self._connected():
            self._deaf_at = now
        return now - self._deaf_at > self._silent_after
