"""What wakes a loop."""

import asyncio
from typing import Final

_SPACING_SECONDS: Final = 0.02


class Bell:
    """Wakes one loop: rung when something is to be done, so that nothing waits for the next look.

    Two rounds of work begin at least `_SPACING_SECONDS` apart: the first after a pause starts at once, and under load
    what comes meanwhile makes one batch.
    """

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._not_before = 0.0
        self.working = False

    def ring(self) -> None:
        """There is work."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Return when it is rung, at once if it was rung since the last wait, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()

    async def begin(self) -> None:
        """Return when a round may begin."""
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            await asyncio.sleep(self._not_before - now)
        self._not_before = asyncio.get_running_loop().time() + _SPACING_SECONDS
