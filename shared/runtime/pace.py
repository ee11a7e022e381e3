"""Lets what comes under load make fewer and larger batches, and keeps an idle system as quick as it is."""

import asyncio
import time
from typing import Final

SPACING_SECONDS: Final = 0.02
_FEW: Final = 2


class Pace:
    """Rounds of work follow each other at once while they bring one or two things: a job alone waits for nothing. After
    a round of more the next begins `SPACING_SECONDS` after it, with all that has come meanwhile."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def round_of(self, count: int) -> None:
        """A round of so many things begins."""
        self._not_before = time.monotonic() + SPACING_SECONDS if count > _FEW else 0.0

    async def next(self) -> None:
        """Return when the next round may begin."""
        pause = self._not_before - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
