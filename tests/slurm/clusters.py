"""Clusters of a test run, which nothing of outlives it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from infra.slurm.cluster import Cluster
from infra.slurm.options import Options
from tests.patience import PATIENCE_SECONDS

ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def guarded(options: Options) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, its jobs and its folder too, however this process ends: another one waits for
    that. The folder is in none that other users cannot enter, as pytest's own is."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-slurm-"))
    folder.chmod(0o755)
    command = (sys.executable, "-m", "infra.slurm", "guard", str(folder))
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    assert guard.stdin is not None
    try:
        cluster = Cluster(folder, options)
        cluster.start()
        yield cluster
    finally:
        guard.stdin.close()
        assert guard.wait(PATIENCE_SECONDS) == 0, f"the cluster in {folder} was not stopped"
