"""What a cluster may leave behind: jobs that outlive slurmd, daemons that nobody wrote down, control groups."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Final

from infra.slurm.configuration import ClusterError, Layout
from infra.slurm.daemons import ROOT_VARIABLE

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SECONDS: Final = 20


def kill_everything(layout: Layout, *, but: Set[int] = frozenset()) -> None:
    """Kill every process of the cluster and of its jobs, `but` those and what they started, until all are gone."""
    deadline = time.monotonic() + _SECONDS
    while found := sorted(processes(layout, but=but)):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of the cluster in {layout.root} do not end: {found}")
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def processes(layout: Layout, *, but: Set[int] = frozenset()) -> set[int]:
    """Daemons, steps, what runs in jobs, and all that these have started. Not commands that only ask the cluster."""
    daemon = f"{ROOT_VARIABLE}={layout.root}".encode()
    asks = f"SLURM_CONF={layout.slurm_conf}".encode()
    parents, ours = {}, set()
    for pid, parent, environment in _everybody():
        parents[pid] = parent
        in_a_job = asks in environment and any(line.startswith(b"SLURM_JOB_ID=") for line in environment)
        if daemon in environment or in_a_job:
            ours.add(pid)
    return _with_descendants(ours, parents) - _with_descendants(but, parents) - {os.getpid()}


def _with_descendants(some: Set[int], parents: Mapping[int, int]) -> set[int]:
    found = set(some)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def remove_control_groups(node: str) -> None:
    """Those that the steps of a node were in; empty once their processes are gone."""
    for top in _CGROUPS.glob(f"*/slurm_{node}"):
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


def _everybody() -> Iterator[tuple[int, int, list[bytes]]]:
    """Pid, parent and environment of each process that has not ended."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if state not in "ZX":
            yield int(folder.name), int(parent), environment
