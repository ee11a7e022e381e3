"""How long complete observations have shown nothing of what should be there. Pure: the time is an argument."""

from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

Key = tuple[str, int]
LONGEST_GAP: Final = timedelta(seconds=5)
"""Two observations further apart than this say nothing about the time between them."""
_NOTHING: Final[Mapping[Key, timedelta]] = MappingProxyType({})


class Absences:
    """Counts, per attempt, the time between complete observations that both show it absent.

    Time in which nobody looked, or could not look, never counts.
    """

    def __init__(
        self,
        lost_after: timedelta,
        counted: Mapping[Key, timedelta] = _NOTHING,
        longest_gap: timedelta = LONGEST_GAP,
    ) -> None:
        """`counted` is what an earlier observer has counted; the time between its last look and our first is blind."""
        self._lost_after = lost_after
        self._absent = dict(counted)
        self._longest_gap = longest_gap
        self._before: datetime | None = None

    @property
    def counted(self) -> Mapping[Key, timedelta]:
        """How long each of them is absent."""
        return MappingProxyType(self._absent)

    def blind(self) -> None:
        """An observation was not complete: what was before it does not reach past it."""
        self._before = None

    def observed(self, at: datetime, there: Set[Key], expected: Mapping[Key, datetime]) -> set[Key]:
        """A complete observation begun at `at`. `expected` gives each attempt's acceptance; the lost ones come back."""
        gap = timedelta(0) if self._before is None else at - self._before
        counted = gap if timedelta(0) <= gap <= self._longest_gap else timedelta(0)
        self._before = at
        absent = {key for key, accepted_at in expected.items() if key not in there and accepted_at <= at}
        self._absent = {key: self._absent[key] + counted if key in self._absent else timedelta(0) for key in absent}
        return {key for key, duration in self._absent.items() if duration >= self._lost_after}
