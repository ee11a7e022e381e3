"""Riding out the time for which a server that is started again does not answer."""

import random
import time
from typing import Final

from shared.client.errors import ClientError, ServerGone

OUTAGE_SECONDS: Final = 45.0
"""How long a server that answered before is waited for: several times what a restart of it takes."""
_FIRST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 2.0
_WELL_SECONDS: Final = 5.0


class Outage:
    """The failures of one request in a row, or of one stream that is taken up again and again."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._opened: float | None = None
        self._pause = _FIRST_SECONDS

    def opened(self) -> None:
        """The server answered. A stream that then goes on for a while was well, even where nothing came."""
        self._opened = time.monotonic()

    def over(self) -> None:
        """What was asked for came."""
        self._began, self._pause = None, _FIRST_SECONDS

    def ride_out(self, error: ClientError) -> None:
        """Return when to try again; each time it takes longer, and not as long as for others. `ServerGone` where it
        has gone on for too long."""
        now = time.monotonic()
        if self._opened is not None and now - self._opened >= _WELL_SECONDS:
            self.over()
        self._opened = None
        self._began = now if self._began is None else self._began
        if now - self._began >= OUTAGE_SECONDS:
            raise ServerGone(f"the server did not come back within {OUTAGE_SECONDS:g} s: {error}") from None
        time.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 # spreads load, protects nothing
        self._pause = min(2 * self._pause, _LONGEST_SECONDS)
