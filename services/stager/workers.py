"""Workers: attempts are leased from their rows, worked on in threads, and published if the lease is still ours."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from services.stager.domain import Stage
from services.stager.leases import Claim, Leases
from shared.runtime.errors import DatabaseUnavailable
from shared.runtime.logs import Log

_LOOK_SECONDS: Final = 1.0
"""How often rows are looked for that nobody told of: those whose lease ran out, or whose pause is over."""
_STOP_SECONDS: Final = 10.0
"""What a thread has for noticing the end. One that hangs in a store changes nothing: the fence keeps it out."""


class Abandoned(Exception):
    """The work is not ours any more, or the process ends."""


class Lease:
    """What a worker thread asks now and then: may I go on?"""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.lost = False
        """It was taken away: nobody will go on where it ended."""
        self._ended = threading.Event()

    def go_on(self) -> None:
        """Return while the lease holds; raise Abandoned when it does not."""
        if self._ended.is_set():
            raise Abandoned

    def end(self, *, lost: bool) -> None:
        """Make the worker stop at its next step."""
        self.lost = lost
        self._ended.set()


Work = Callable[[Lease], Awaitable[None]]
"""Does the work of a lease and publishes it. Raises Abandoned where it was told to stop."""


class Workers:
    """Up to `size` attempts of one stage at once."""

    def __init__(self, leases: Leases, stage: Stage, work: Work, size: int, log: Log) -> None:
        self._leases = leases
        self._stage = stage
        self._work = work
        self._size = size
        self._log = log
        self._bell = asyncio.Event()
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._stopping = False

    def ring(self) -> None:
        """There may be work."""
        self._bell.set()

    async def once(self) -> None:
        """Begin what is due and fits, then wait until there may be more."""
        self._bell.clear()
        free = self._size - len(self._running)
        if free > 0 and not self._stopping:
            for claim in await self._leases.claim(self._stage, free):
                lease = Lease(claim)
                task = asyncio.create_task(self._one(lease))
                self._running[task] = lease
                task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def renew(self) -> None:
        """Hold on to the leases of what runs; end what was taken from us."""
        leases = list(self._running.values())
        if not leases:
            return
        ours = await self._leases.renew([lease.claim for lease in leases])
        for lease in leases:
            if (lease.claim.job, lease.claim.attempt) not in ours:
                lease.end(lost=True)

    async def stop(self) -> None:
        """Begin nothing more, end what runs, and hand its rows back, to be taken by anybody at once."""
        self._stopping = True
        leases = list(self._running.values())
        for lease in leases:
            lease.end(lost=False)
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_SECONDS)
        if leases:
            try:
                await self._leases.hand_back([lease.claim for lease in leases], after_seconds=0, uncounted=True)
            except DatabaseUnavailable as error:
                self._log.warning("rows not handed back, their leases run out", error=str(error), count=len(leases))
        self.ring()

    async def _one(self, lease: Lease) -> None:
        try:
            await self._work(lease)
        except Abandoned:
            pass
        except Exception as error:
            claim = lease.claim
            self._log.error("work failed", error=error, job=claim.job, attempt=claim.attempt, tries=claim.tries)
            await self._leases.hand_back([claim], after_seconds=pause_seconds(claim.tries))

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.warning("row not handed back, its lease runs out", error=repr(error))
        self.ring()


def pause_seconds(tries: int) -> float:
    """How long to wait after so many tries: 0.5 s, doubling, up to half a minute."""
    return float(min(0.5 * 2 ** (tries - 1), 30.0))
