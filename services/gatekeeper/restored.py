"""How long a restore keeps the gates closed: until this service has heard what the others have seen."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from shared.runtime.errors import Unavailable
from shared.runtime.standing import Standing

_CONSUMER: Final = "gatekeeper"


class Restored:
    """The standing, prolonged: `api` is in step once it has adopted what runs, and the events that say so to us may
    still be on their way. Without them what runs would not be booked, and its room given away."""

    def __init__(self, standing: Callable[[], Standing], lag: Callable[[str], Awaitable[int]]) -> None:
        """`lag` counts a consumer's messages that were not handled, by whichever replica."""
        self._standing = standing
        self._lag = lag
        self._behind = False

    def now(self) -> Standing:
        """What the gates go by."""
        standing = self._standing()
        return replace(standing, restoring=True) if self._behind else standing

    async def look(self) -> None:
        """Notice that a restore is under way, and that its last event was handled."""
        if self._standing().restoring:
            self._behind = True
        elif self._behind:
            try:
                self._behind = await self._lag(_CONSUMER) > 0
            except Unavailable:
                return  # the broker is away: nothing could be told, either
