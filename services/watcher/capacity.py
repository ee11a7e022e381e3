"""What this machine has for jobs, told to the gatekeeper: at the start, on every change, and every 10 s."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from shared.backends.local.capacity import Capacity as LocalCapacity
from shared.contracts.queries import Capacity
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

CLUSTER: Final = "local"
CORETYPE: Final = "local"
_REPEAT: Final = timedelta(seconds=10)

Publish = Callable[[Capacity], Awaitable[None]]
Ask = Callable[[], LocalCapacity | None]
"""What the records say that the machine has; None: no information."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is allocatable. Foreign use is not known on this machine, so it is not taken off."""

    gpus: int = 0
    slots: int = 0
    virtual: bool = False
    reachable: bool = False


class CapacityReports:
    """Publishes what the host has recorded; while no host lives, the last known numbers, marked unreachable."""

    def __init__(self, ask: Ask, publish: Publish, clock: Clock, log: Log) -> None:
        self._ask = ask
        self._publish = publish
        self._clock = clock
        self._log = log
        self._told: Room | None = None
        self._told_at: datetime | None = None
        self._room = Room()

    async def once(self) -> None:
        """Look, and publish where that is due."""
        self._room = self._look(await asyncio.to_thread(self._ask))
        now = self._clock.now()
        if self._room == self._told and self._told_at is not None and now - self._told_at < _REPEAT:
            return
        await self._publish(
            Capacity(
                cluster=CLUSTER,
                coretype=CORETYPE,
                gpus=self._room.gpus,
                slots=self._room.slots,
                virtual=self._room.virtual,
                reachable=self._room.reachable,
                at=now,
            )
        )
        self._told, self._told_at = self._room, now

    def _look(self, has: LocalCapacity | None) -> Room:
        if has is not None and has.host_alive:
            return Room(has.gpus_total, has.slots_total, has.virtual, reachable=True)
        if self._room.reachable or self._told is None:
            self._log.warning("no local host lives: nothing can be launched until it is started")
        known = self._room if has is None else Room(has.gpus_total, has.slots_total, has.virtual)
        return replace(known, reachable=False)
