"""Ending attempts on a Slurm cluster: nothing starts any more, what runs is asked to end, then Slurm ends it.

The queue decides whether anything is left, in a whole answer alone; claims and the runner's records say what ran.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Final

from services.launcher.backend import Holder, Look, Shown, Target, Where
from services.launcher.slurm.cancelling import Cancelling
from services.launcher.slurm.evidence import Attempts, Evidence, in_thread
from services.launcher.slurm.found import UP, is_alive, ran
from services.launcher.slurm.looks import Looks, Queue
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import Claim, CouldNotAsk
from shared.backends.slurm import records
from shared.backends.slurm.rows import QueueRow
from shared.runtime.clock import Clock

_KILL_SECONDS: Final = 5.0
_ENVIRONMENT: Final = "env."


class Stopping:
    """On one cluster."""

    def __init__(self, looks: Looks, attempts: Attempts, cancelling: Cancelling, clock: Clock) -> None:
        self._looks = looks
        self._attempts = attempts
        self._files = LocalClient(attempts.root)
        self._cancelling = cancelling
        self._clock = clock

    async def revoke(self, targets: Sequence[Target]) -> list[Look]:
        """As the protocol says. What is queued without a claim can only exit without running, and is cancelled."""
        claims = await self._files.revoke_all([self._attempts.directory(target) for target in targets])
        try:
            queue = await self._looks.queue()
            evidence = await self._attempts.look(targets)  # after the queue: what has ended there is recorded here
            unclaimed = [target for target, held in zip(targets, claims, strict=True) if held == ()]
            left = await self._cancelled(unclaimed, queue)
        except CouldNotAsk as error:
            return [held if isinstance(held, CouldNotAsk) else error for held in claims]
        return [
            left.get(target.submission, ()) if held == () else _holders(target, held, queue, one)
            for target, held, one in zip(targets, claims, evidence, strict=True)
        ]

    async def stop(self, target: Target, grace_seconds: float, signal_number: int, *, pausing: bool) -> None:
        """As the protocol says: the runner is asked, and told that it was; without a grace Slurm ends it as well."""
        name = signal.Signals(signal_number).name[3:]
        now = self._clock.now()
        await in_thread(
            lambda: records.request_stop(
                self._attempts.directory(target), "pause" if pausing else "stop", name, int(grace_seconds), now
            )
        )
        for row in await self._alive(target):
            if grace_seconds > 0 and row.state in UP:
                await self._cancelling.nudge(row)
            else:
                await self._cancelling.cancel(row)

    async def kill(self, target: Target) -> bool:
        """As the protocol says."""
        deadline = asyncio.get_running_loop().time() + _KILL_SECONDS
        while rows := await self._alive(target):
            for row in rows:
                await self._cancelling.cancel(row)
            if asyncio.get_running_loop().time() >= deadline:
                return False
        return True

    async def remove_environments(self, targets: Sequence[Target]) -> None:
        """Values of environments that nobody has read. Raises CouldNotAsk."""

        def remove() -> None:
            for target in targets:
                _remove_environments(self._attempts.directory(target))

        await in_thread(remove)

    async def _cancelled(self, targets: Sequence[Target], queue: Queue) -> dict[str, CouldNotAsk]:
        """Cancel what is queued of revoked attempts that nobody has claimed; those of which something is left."""
        left: dict[str, CouldNotAsk] = {}

        async def cancel(target: Target) -> bool:
            try:
                rows = [row for row in queue.of(target.submission) if is_alive(row)]
                for row in rows:
                    await self._cancelling.cancel(row)
            except CouldNotAsk as error:
                left[target.submission] = error
                return False
            return bool(rows)

        cancelled = await asyncio.gather(*(cancel(target) for target in targets))
        if any(cancelled):
            queue = await self._looks.queue()
            for target, was in zip(targets, cancelled, strict=True):
                if was and any(map(is_alive, queue.of(target.submission))):
                    left[target.submission] = CouldNotAsk("its Slurm job is being cancelled")
        return left

    async def _alive(self, target: Target) -> list[QueueRow]:
        return [row for row in (await self._looks.queue()).of(target.submission) if is_alive(row)]


def _holders(target: Target, held: tuple[Claim, ...] | CouldNotAsk, queue: Queue, one: Evidence | CouldNotAsk) -> Look:
    if isinstance(held, CouldNotAsk):
        return held
    if isinstance(one, CouldNotAsk):
        return one
    holders = []
    for name in dict.fromkeys(claim.submission or target.submission for claim in held):
        try:
            rows = queue.of(name)
        except CouldNotAsk as error:
            return error
        alive = any(map(is_alive, rows))
        where = Where.ALIVE if alive else Where.ENDED if one.known.exits or rows else Where.GONE
        holders.append(Holder(name, Shown(target, where, True, ran(one.known))))
    return tuple(holders)


def _remove_environments(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.startswith(_ENVIRONMENT):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{directory}/{name}")
