"""Stacks that run jobs on the test cluster, and what tests ask of them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.slurm.cluster import Cluster
from shared.client.client import Tidegate
from shared.client.errors import Refused
from shared.client.views import JobView
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.e2e.stacks import Stack, eventually
from tests.slurm import jobs

CLUSTER: Final = "hpc"
"""The test cluster's name in a stack."""
STUCK_SECONDS: Final = 2
_CORETYPES: Final = """
[hpc.coretypes.cpu]
partition = "debug"

[hpc.coretypes.gpu]
partition = "debug"
gres = "gpu"

[hpc.coretypes.small]
partition = "debug"
memory_mib = 50

[hpc.coretypes.short]
partition = "short"

[hpc.coretypes.lowrq]
partition = "lowrq"
gres = "gpu"

[hpc.coretypes.low]
partition = "low"
gres = "gpu"

[hpc.coretypes.nowhere]
partition = "nosuch"

[hpc.coretypes.impossible]
partition = "debug"
constraint = "nosuch"
"""


def clusters_toml(cluster: Cluster, **settings: str) -> str:
    """A file of clusters that names the test cluster; `settings` as TOML writes their values."""
    table = {
        "slurm_conf": f'"{cluster.environment["SLURM_CONF"]}"',
        "allow_root": "true",
        "tick_seconds": "0.5",
        "settle_seconds": "5",
        "stuck_seconds": str(STUCK_SECONDS),
        **settings,
    }
    return f"[{CLUSTER}]\n" + "".join(f"{name} = {value}\n" for name, value in table.items()) + _CORETYPES


@contextmanager
def running_stack(cluster: Cluster, folder: Path, **settings: str) -> Iterator["SlurmStack"]:
    """A stack whose jobs may run on the cluster, from when it offers them until the end of the block."""
    (folder / "clusters.toml").write_text(clusters_toml(cluster, **settings))
    stack = Stack(folder / "home")
    stack.home.mkdir()
    stack.up("--virtual-gpus", "1", "--clusters", str(folder / "clusters.toml"))
    try:
        with stack.client() as client:
            made = SlurmStack(stack, client, cluster)
            made.wait_for_offers()
            yield made
    finally:
        stack.down()


@dataclass
class SlurmStack:
    """A stack, its API, and the cluster behind it."""

    stack: Stack
    client: Tidegate
    cluster: Cluster

    def wait_for_offers(self) -> None:
        """Until a job has run on the cluster: what it has is known some seconds after a start."""

        def ran() -> bool:
            try:
                return self.run("true").state == "SUCCEEDED"
            except Refused:  # nobody offers its coretype yet
                return False

        eventually(ran, "a job to run on the cluster")

    def submit(self, script: str, *, coretype: str = "cpu", **spec: Any) -> str:
        """The id of a new job that runs a shell script."""
        return self.client.submit(
            SubmitRequest(spec=JobSpec(command=("sh", "-c", script), coretype=coretype, **spec))
        ).id

    def run(self, script: str, **spec: Any) -> JobView:
        """A job that has ended."""
        return self.client.wait(self.submit(script, **spec))

    def until(self, job: str, condition: Callable[[JobView], object], what: str) -> JobView:
        """The job once something holds of it that stays, or that this test alone changes."""
        seen: list[JobView] = []

        def holds() -> bool:
            seen[:] = [self.client.job(job)]
            return bool(condition(seen[0]))

        try:
            eventually(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: it is {seen[0].model_dump_json(indent=1)}") from None
        return seen[0]

    def running(self, job: str) -> JobView:
        """The job once it runs."""
        return self.until(job, lambda one: one.state == "RUNNING", "the job to run")

    def log(self, job: str, stream: str = "stdout") -> str:
        """What it has written so far."""
        return b"".join(self.client.logs(job, stream=stream)).decode()

    def slurm_id(self, job: str) -> str:
        """Its Slurm job's, once there is one."""
        return self.until(job, lambda one: one.backend.ref, "the job to be taken").backend.ref or ""

    def slurm_ids(self, job: str) -> list[str]:
        """Of all Slurm jobs that were ever submitted for it, as far as the controller knows."""
        listed = self.cluster.run(["squeue", "--noheader", "--states=all", "--format=%i %j"]).stdout
        return [line.split()[0] for line in listed.splitlines() if f".{job}.a" in line]

    @contextmanager
    def standing_still(self, service: str) -> Iterator[None]:
        """A service does nothing while the block runs."""
        pid = self.stack.processes()[service]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def accounted_gpu_seconds(cluster: Cluster, slurm_id: str) -> int:
    """What sacct has in the end of all segments: elapsed time x GPUs."""

    def rows() -> list[list[str]]:
        said = jobs.accounted(cluster, slurm_id, "state,start,end,elapsedraw,alloctres")
        return [line.split("|") for line in said.splitlines()]

    def settled() -> bool:
        return bool(found := rows()) and all(
            row[2] != "Unknown" and row[0] not in ("RUNNING", "PENDING") for row in found
        )

    eventually(settled, "accounting to hear of its end")
    return sum(int(elapsed) * _gpus(tres) for _, _, _, elapsed, tres in rows())


def _gpus(tres: str) -> int:
    return sum(int(part.partition("=")[2]) for part in tres.split(",") if part.startswith("gres/gpu="))
