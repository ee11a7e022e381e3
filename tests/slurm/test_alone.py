"""A cluster by hand, beside others, and gone when it is to be."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from infra.slurm.configuration import ClusterError, Layout, with_settings
from infra.slurm.leftovers import processes
from infra.slurm.missing import why_no_cluster
from infra.slurm.options import Options
from tests.servers import wait_until as wait
from tests.slurm import jobs
from tests.slurm.clusters import ROOT

needs_slurm = pytest.mark.skipif(why_no_cluster() is not None, reason=why_no_cluster() or "")

HELD_OPEN = """
import sys
from infra.slurm.options import Options
from tests.slurm.clusters import guarded
with guarded(Options(accounting=False)) as cluster:
    started = cluster.root / "started"
    cluster.run(["sbatch", "--output=/dev/null", f"--wrap=(setsid sleep {sys.argv[1]} &); touch {started}; sleep 1000"])
    cluster.wait_for(started.exists, "the job")
    print(cluster.root, flush=True)
    sys.stdin.read()
"""


def by_hand(*arguments: str | Path) -> str:
    """What `python -m infra.slurm` prints."""
    command = [sys.executable, "-m", "infra.slurm", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def sleeping(seconds: str) -> bool:
    """Whether anybody sleeps for so long."""
    return subprocess.run(["pgrep", "--full", "--exact", f"sleep {seconds}"], check=False).returncode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="tidegate-slurm-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_slurm
def test_a_cluster_by_hand_beside_another(cluster: Cluster, open_folder: Path) -> None:
    by_hand("start", "--no-accounting", "--cpus", "2", "--set", "MessageTimeout=5", open_folder)
    other = Cluster(open_folder)
    try:
        assert f"SLURM_CONF={other.environment['SLURM_CONF']}" in by_hand("env", open_folder)
        held = jobs.submit(other, "true", "--hold", "--job-name=there")
        assert "there" not in cluster.run(["squeue"]).stdout
        assert held == "1"
    finally:
        by_hand("stop", open_folder)
    assert not processes(Layout(open_folder))
    assert cluster.node_state() == "idle"


@needs_slurm
def test_neither_a_daemon_nor_a_job_outlives_a_run_that_is_killed() -> None:
    seconds = f"1000.{os.getpid()}"  # tells this test's daemonized child of the job from others
    command = [sys.executable, "-c", HELD_OPEN, seconds]
    run = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    folder = Path(run.stdout.readline().strip())
    assert sleeping(seconds)
    Cluster(folder).freeze("slurmctld")
    run.kill()
    run.communicate()
    wait(lambda: not folder.exists(), "the folder to be removed")
    assert not processes(Layout(folder))
    assert not sleeping(seconds)


@needs_slurm
def test_a_daemon_that_does_not_start_is_named_with_its_log(open_folder: Path) -> None:
    cluster = Cluster(open_folder, Options(accounting=False, settings={"SelectType": "select/none"}))
    with pytest.raises(ClusterError, match=f"slurmctld ended with 1; {open_folder}/log/slurmctld.log ends with"):
        cluster.start()
    cluster.stop()


def test_a_folder_that_other_users_cannot_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ClusterError, match=f"{tmp_path} is closed to other users"):
        Layout(tmp_path / "cluster").make(gpus=0)


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_no_cluster() == "a Slurm test cluster needs root"


def test_a_setting_takes_the_place_of_the_one_that_stands_there() -> None:
    text = "# KillWait=1\nKillWait=2\nMinJobAge=3\n"
    assert with_settings(text, {"killwait": "9", "New": "x=1"}) == "# KillWait=1\nkillwait=9\nMinJobAge=3\nNew=x=1\n"
