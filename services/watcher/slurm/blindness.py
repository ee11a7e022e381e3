"""When the controller could not be asked, and when its answer cannot be believed. Pure: the time is an argument."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_KEPT: Final = timedelta(days=1)
_MANY: Final = 10
_SHARE: Final = 0.5
_BELIEVED_AFTER: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Blind:
    """The controller could not be asked from `since` until `until`."""

    since: datetime
    until: datetime


class Blindness:
    """Remembers both between two looks."""

    def __init__(self) -> None:
        self._closed_since: datetime | None = None
        self._last_look: datetime | None = None
        self._times: list[Blind] = []
        self._broken_since: datetime | None = None

    @property
    def times(self) -> Sequence[Blind]:
        """Of the last day, but for the one that goes on."""
        return tuple(self._times)

    def close_eyes(self, at: datetime) -> None:
        """The controller did not answer a look begun at `at`: since the last good one it may have been away."""
        if self._closed_since is None:
            self._closed_since = self._last_look or at

    def open_eyes(self, at: datetime) -> None:
        """A look begun at `at` was answered and believed."""
        if self._closed_since is not None:
            self._times = [time for time in self._times if at - time.until < _KEPT]
            self._times.append(Blind(self._closed_since, at))
            self._closed_since = None
        self._last_look = at
        self._broken_since = None

    def broken(self, alive: Set[str], shown: Set[str], at: datetime) -> str | None:
        """Why an answer is not believed: more than half of what lived is not in it, from one look to the next. One that
        stays so for a minute is believed."""
        gone = len(alive - shown)
        if len(alive) < _MANY or gone <= len(alive) * _SHARE:
            return None
        self._broken_since = self._broken_since or at
        if at - self._broken_since >= _BELIEVED_AFTER:
            return None
        return f"{gone} of {len(alive)} jobs that lived are not in the queue at once: that is not believed yet"
