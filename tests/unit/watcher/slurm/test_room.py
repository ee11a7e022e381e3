"""What a cluster has for the jobs of a coretype."""

from services.watcher.slurm.room import Room, RoomReports, rooms
from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.nodes import Capacity as Held
from shared.backends.slurm.rows import Listed, NoAnswer
from shared.contracts.queries import Capacity
from shared.runtime.clock import FixedClock
from shared.runtime.logs import Log
from tests.unit.watcher.slurm.rows import NOON

HELD = (
    Held("gpu", "cpu", 64, 10, 16),
    Held("gpu", "gpu", 12, 4, 4),
    Held("gpu", "gpu:a100", 8, 4, 4),
    Held("small", "cpu", 8, 0, 0),
)


class Nodes(SlurmClient):
    """A cluster that is asked for its nodes."""

    held: Listed[Held] | NoAnswer = Listed(HELD)

    async def capacity(self) -> Listed[Held] | NoAnswer:
        return self.held


def test_what_is_out_of_order_is_not_there_and_what_others_use_is() -> None:
    coretypes = {
        "a100": Coretype(partition="gpu", gres="gpu:a100", cpus=8),
        "any": Coretype(partition="gpu", gres="gpu"),
        "plain": Coretype(partition="small", cpus=3),
        "anywhere": Coretype(),
        "gone": Coretype(partition="nosuch", gres="gpu"),
    }
    assert rooms(coretypes, HELD) == {
        "a100": Room(gpus=4, slots=6, total_gpus=8),
        "any": Room(gpus=8, slots=48, total_gpus=12),
        "plain": Room(gpus=0, slots=2, total_gpus=0),
        "anywhere": Room(gpus=0, slots=48, total_gpus=0),
        "gone": Room(gpus=8, slots=48, total_gpus=12),
    }


def test_jobs_are_handed_over_ahead_where_there_is_any_room() -> None:
    coretypes = {"any": Coretype(partition="gpu", gres="gpu"), "none": Coretype(partition="small", cpus=9)}
    assert rooms(coretypes, HELD, ahead=10) == {
        "any": Room(gpus=8, slots=58, total_gpus=12),
        "none": Room(gpus=0, slots=0, total_gpus=0),
    }


async def test_a_cluster_that_cannot_be_asked_keeps_its_numbers_and_is_unreachable() -> None:
    told: list[Capacity] = []

    async def publish(report: Capacity) -> None:
        told.append(report)

    client, settings = Nodes(), SlurmCluster(coretypes={"a100": Coretype(partition="gpu", gres="gpu:a100")})
    reports = RoomReports("hpc", settings, client, publish, FixedClock(NOON), Log("tidegate"))
    await reports.once()
    client.held = NoAnswer("slurmctld is down")
    await reports.once()
    client.held = Listed(HELD)
    await reports.once()
    assert [(one.cluster, one.coretype, one.gpus, one.reachable) for one in told] == [
        ("hpc", "a100", 4, True),
        ("hpc", "a100", 4, False),
        ("hpc", "a100", 4, True),
    ]
