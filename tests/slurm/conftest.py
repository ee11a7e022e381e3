"""The real Slurm cluster of the tests: one worker of a run has it, and starts it for the first test that wants it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from infra.slurm.cluster import Cluster
from infra.slurm.missing import why_no_cluster, why_no_memory_limits
from infra.slurm.options import Options
from tests.patience import PATIENCE_SECONDS

_ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def guarded(options: Options) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, its jobs and its folder too, however this process ends: another one waits for
    that. The folder is in none that other users cannot enter, as pytest's own is."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-slurm-"))
    folder.chmod(0o755)
    command = (sys.executable, "-m", "infra.slurm", "guard", str(folder))
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=_ROOT, start_new_session=True)
    assert guard.stdin is not None
    try:
        cluster = Cluster(folder, options)
        cluster.start()
        yield cluster
    finally:
        guard.stdin.close()
        assert guard.wait(PATIENCE_SECONDS) == 0, f"the cluster in {folder} was not stopped"


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """One cluster for the whole run: 16 cores, 4 GPUs, accounting. For what outlives a test; else take `cluster`."""
    if missing := why_no_cluster():
        pytest.skip(missing)
    with guarded(Options()) as cluster:
        yield cluster


@pytest.fixture
def cluster(slurm: Cluster) -> Iterator[Cluster]:
    """The run's cluster. What a test stops, freezes, drains or leaves in the queue is put right after it."""
    yield slurm
    slurm.heal()


@pytest.fixture(scope="session")
def cluster_with_memory_limits() -> Iterator[Cluster]:
    """One more whose kernel kills a job above its memory."""
    if missing := why_no_cluster() or why_no_memory_limits():
        pytest.skip(missing)
    with guarded(Options(memory_limits=True)) as cluster:
        yield cluster
