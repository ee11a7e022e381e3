"""When the controller could not be asked, and when its answer cannot be believed. Pure: the time is an argument."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_KEPT: Final = timedelta(days=1)
_MOST: Final = 100
_MANY: Final = 10
_SHARE: Final = 0.5
_BELIEVED_AFTER: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Blind:
    """The controller could not be asked, or nobody asked it, from `since` until `until`."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Sight:
    """What the next observer has to know: when the controller was last seen, and the newest blind times of a day."""

    looked_at: datetime | None = None
    blind: tuple[Blind, ...] = ()


class Blindness:
    """Remembers both between two looks. Until its first look nobody looks: what an observer before it saw last is the
    beginning of a blind time."""

    def __init__(self, before: Sight | None = None) -> None:
        self._sight = before or Sight()
        self._closed_since = self._sight.looked_at
        self._broken_since: datetime | None = None

    @property
    def sight(self) -> Sight:
        """To be kept. Without the blind time that goes on: `looked_at` is its beginning."""
        return self._sight

    @property
    def times(self) -> Sequence[Blind]:
        """Of the last day, but for the one that goes on."""
        return self._sight.blind

    def close_eyes(self, at: datetime) -> None:
        """The controller did not answer a look begun at `at`: since the last good one it may have been away."""
        if self._closed_since is None:
            self._closed_since = self._sight.looked_at or at

    def open_eyes(self, at: datetime) -> None:
        """A look begun at `at` was answered and believed."""
        blind = tuple(time for time in self._sight.blind if at - time.until < _KEPT)
        if self._closed_since is not None:
            blind = (*blind, Blind(self._closed_since, at))[-_MOST:]
        self._sight = Sight(at, blind)
        self._closed_since = self._broken_since = None

    def broken(self, alive: Set[str], accounted_for: Set[str], at: datetime) -> str | None:
        """Why an answer is not believed: of what lived, more than half is neither in it nor has an end in accounting,
        from one look to the next. One that stays so for a minute is believed."""
        gone = len(alive - accounted_for)
        if len(alive) < _MANY or gone <= len(alive) * _SHARE:
            return None
        self._broken_since = self._broken_since or at
        if at - self._broken_since >= _BELIEVED_AFTER:
            return None
        return f"{gone} of {len(alive)} jobs that lived are not in the queue at once: that is not believed yet"
