"""What a cluster is said to have for the jobs of a coretype."""

import pytest

from services.watcher.slurm.room import Room, rooms
from shared.backends.clusters import Coretype
from shared.backends.slurm.nodes import Capacity

HELD = (
    Capacity("big", "cpu", 64, 0, 16),
    Capacity("big", "gpu", 8, 2, 4),
    Capacity("small", "cpu", 8, 0, 0),
    Capacity("down", "cpu", 8, 0, 8),
)


@pytest.mark.parametrize(
    ("coretype", "room"),
    [
        pytest.param(Coretype(partition="big", gres="gpu"), Room(gpus=4, slots=48, total_gpus=8), id="GPUs"),
        pytest.param(Coretype(partition="big", cpus=16), Room(gpus=0, slots=3, total_gpus=0), id="cores of a job"),
        pytest.param(Coretype(partition="down"), Room(gpus=0, slots=0, total_gpus=0), id="a partition that is down"),
        pytest.param(Coretype(gres="gpu"), Room(gpus=4, slots=48, total_gpus=8), id="no partition"),
        pytest.param(Coretype(partition="nosuch"), Room(gpus=0, slots=48, total_gpus=0), id="one that is not there"),
        pytest.param(Coretype(partition="big,small"), Room(gpus=0, slots=48, total_gpus=0), id="a list of partitions"),
        pytest.param(Coretype(partition="big", gres="tpu"), Room(gpus=0, slots=48, total_gpus=0), id="no such GPUs"),
    ],
)
def test_a_coretype_has_what_its_partition_has_less_what_nobody_gets(coretype: Coretype, room: Room) -> None:
    assert rooms({"some": coretype}, HELD) == {"some": room}
