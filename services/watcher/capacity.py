"""What this machine has for jobs, told to the gatekeeper: at the start, on every change, and every 10 s."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk
from shared.contracts.queries import Capacity
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

CLUSTER: Final = "local"
CORETYPE: Final = "local"
_REPEAT: Final = timedelta(seconds=10)

Publish = Callable[[Capacity], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Room:
    """What is allocatable. Foreign use is not known on this machine, so it is not taken off."""

    gpus: int = 0
    slots: int = 0
    virtual: bool = False
    reachable: bool = False


class CapacityReports:
    """Publishes what the host says; while it does not answer, the last known numbers, marked unreachable."""

    def __init__(self, backend: LocalClient, publish: Publish, clock: Clock, log: Log, *, slots: int) -> None:
        self._backend = backend
        self._publish = publish
        self._clock = clock
        self._log = log
        self._slots = slots
        self._told: Room | None = None
        self._told_at: datetime | None = None
        self._room = Room()

    async def once(self) -> None:
        """Ask the host, and publish where that is due."""
        self._room = await self._ask()
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

    async def _ask(self) -> Room:
        try:
            status = await self._backend.status()
        except CouldNotAsk as error:
            if self._room.reachable or self._told is None:
                self._log.warning("the local host does not answer", why=str(error))
            return Room(self._room.gpus, self._room.slots, self._room.virtual, reachable=False)
        return Room(status.gpus_total, min(self._slots, status.slots_total), status.virtual, reachable=True)
