"""What a Slurm cluster has for jobs, by coretype, told to the gatekeeper every 10 s."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.nodes import Capacity as Held
from shared.backends.slurm.rows import NoAnswer
from shared.contracts.queries import Capacity
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

SECONDS: Final = 10.0
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Room:
    """Of one coretype. Strangers' use is not taken off: the queue is Slurm's, and a job waits there as theirs do."""

    gpus: int
    slots: int
    total_gpus: int


def rooms(coretypes: Mapping[str, Coretype], held: tuple[Held, ...], *, ahead: int = 0) -> dict[str, Room]:
    """What the coretypes' partitions have; one without a partition has what all of them have at most. So has one whose
    partition is not there, or is a list of several: what is wrong with it sbatch says, and a job that waited for room
    in it would never hear. `ahead`: so many jobs more may wait in Slurm's queue where there is any room."""
    shown = {one.partition for one in held}
    found = {}
    for name, coretype in coretypes.items():
        wanted = coretype.partition if coretype.partition in shown else None
        parts = [one for one in held if wanted in (None, one.partition)]
        gpus = [one for one in parts if one.gres == coretype.gres]
        cpus = [one for one in parts if one.gres == _CPU]
        slots = max((one.total - one.unavailable for one in cpus), default=0) // (coretype.cpus or 1)
        found[name] = Room(
            gpus=max((one.total - one.unavailable for one in gpus), default=0),
            slots=slots + ahead if slots else 0,
            total_gpus=max((one.total for one in gpus), default=0),
        )
    return found


class RoomReports:
    """Publishes it; while the cluster cannot be asked, the last known numbers, marked unreachable."""

    def __init__(
        self,
        cluster: str,
        settings: SlurmCluster,
        client: SlurmClient,
        publish: Callable[[Capacity], Awaitable[None]],
        clock: Clock,
        log: Log,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._client = client
        self._publish = publish
        self._clock = clock
        self._log = log
        self._rooms = {name: Room(0, 0, 0) for name in settings.coretypes}
        self._reachable = True

    async def once(self) -> None:
        """Ask, and publish a report of each coretype."""
        held = await self._client.capacity()
        if isinstance(held, NoAnswer):
            if self._reachable:
                self._log.warning("a cluster cannot be asked what it has", cluster=self._cluster, why=held.why)
        else:
            self._rooms = rooms(self._settings.coretypes, held.rows, ahead=self._settings.jobs_ahead)
        self._reachable = not isinstance(held, NoAnswer)
        for name, room in self._rooms.items():
            await self._publish(
                Capacity(
                    cluster=self._cluster,
                    coretype=name,
                    region=self._settings.region,
                    gpus=room.gpus,
                    slots=room.slots,
                    total_gpus=room.total_gpus,
                    reachable=self._reachable,
                    at=self._clock.now(),
                )
            )
