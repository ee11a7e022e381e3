"""What sbatch is told, by the cluster's configuration."""

import signal
from typing import Any

import pytest

from services.launcher.slurm.orders import Misfit, Orders, orders
from shared.backends.slurm.orders import arguments
from tests.unit.launcher.slurm.parts import CLUSTER, a_request


def made(**request: Any) -> Orders:
    order = orders(a_request(**request), CLUSTER, "/root", "t1")
    assert isinstance(order, Orders), order
    return order


def test_a_coretype_and_a_tenant_become_what_slurm_knows() -> None:
    order = made(coretype="gpu", gpus=8, nodes=2, time_limit_seconds=90)
    job = "j" + "0" * 26
    here = f"/root/work/acme/{job}/a1"
    assert set(arguments(order.slurm)) == {
        "--parsable",
        f"--job-name=tidegate.{job}.a1.s1",
        "--comment=tidegate/1 t1 acme",
        f"--chdir={here}",
        f"--output={here}/runner.log",
        f"--error={here}/runner.log",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        "--account=acme-gpu",
        "--partition=gpu",
        "--constraint=a100",
        "--gres=gpu:a100:4",
        "--qos=high",
        "--time=2",
        "--nodes=2",
    }
    assert (order.runner.directory, order.runner.token) == (f"{here}/e1", "t1")


def test_a_tenant_without_an_account_of_its_own_has_the_clusters() -> None:
    order = orders(a_request(), CLUSTER.model_copy(update={"accounts": {}}), "/root", "t1")
    assert isinstance(order, Orders)
    assert (order.slurm.account, order.slurm.cpus_per_task, order.slurm.memory_bytes) == ("general", 2, 512 << 20)


def test_a_warning_is_sent_by_slurm_and_passed_on_by_the_runner() -> None:
    order = made(warning_signal=signal.SIGUSR1, warning_seconds=30)
    assert (order.slurm.signal, order.runner.warning_signal) == ("B:USR1@30", "USR1")


@pytest.mark.parametrize(
    ("request_", "word", "sentence"),
    [
        ({"coretype": "h100"}, "configuration", "the cluster has no coretype h100; it has cpu, gpu"),
        ({"gpus": 1}, "configuration", "coretype cpu has no GPUs: its table names no gres"),
        ({"workstation": True}, "invalid_order", "workstations run on this machine only, as coretype local"),
        ({"coretype": "gpu", "gpus": 3, "nodes": 2}, "invalid_order", "3 GPUs cannot be spread evenly over 2 nodes"),
    ],
)
def test_what_does_not_fit_the_cluster_is_told(request_: dict[str, Any], word: str, sentence: str) -> None:
    assert orders(a_request(**request_), CLUSTER, "/root", "t1") == Misfit(word, sentence)
