"""The real Slurm cluster of the tests: one worker of a run has it, and starts it for the first test that wants it."""

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from infra.slurm.cluster import Cluster
from infra.slurm.missing import why_no_cluster, why_no_memory_limits
from infra.slurm.options import Options
from tests.slurm.clusters import guarded
from tests.slurm.stacks import SlurmStack, running_stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What lacks a cluster is one line of the summary, not one per test."""
    report = yield
    if report.skipped and (missing := why_no_cluster()):
        report.longrepr = (__file__, 1, f"Skipped: {missing}")
    return report


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """One cluster for the whole run: 16 cores, 4 GPUs, accounting, memory limits where the kernel has them. For what
    outlives a test; else take `cluster`."""
    if missing := why_no_cluster():
        pytest.skip(missing)
    with guarded(Options(memory_limits=why_no_memory_limits() is None)) as cluster:
        yield cluster


@pytest.fixture
def cluster(slurm: Cluster) -> Iterator[Cluster]:
    """The run's cluster. What a test stops, freezes, drains, changes or leaves in the queue is put right after it."""
    yield slurm
    slurm.heal()


@pytest.fixture
def cluster_with_memory_limits(cluster: Cluster) -> Cluster:
    """The run's cluster where the kernel kills a job above its memory."""
    if not cluster.options.memory_limits:
        pytest.skip(why_no_memory_limits() or "")
    return cluster


@pytest.fixture(scope="session")
def stack_on_slurm(slurm: Cluster) -> Iterator[SlurmStack]:
    """The run's stack whose jobs run on the run's cluster, where Slurm may start them again. For `hpc`."""
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-hpc-") as folder,
        running_stack(slurm, Path(folder), may_requeue="true") as stack,
    ):
        yield stack


@pytest.fixture
def hpc(stack_on_slurm: SlurmStack, cluster: Cluster) -> SlurmStack:
    """The stack, on a cluster that is put right after the test."""
    assert cluster is stack_on_slurm.cluster
    return stack_on_slurm


@pytest.fixture(scope="session")
def stack_beside(slurm: Cluster) -> Iterator[SlurmStack]:
    """Another stack on the same cluster, which asks no accounting, and whose jobs Slurm may not start again."""
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-beside-") as folder,
        running_stack(slurm, Path(folder), accounting="false") as stack,
    ):
        yield stack


@pytest.fixture
def beside(stack_beside: SlurmStack, cluster: Cluster) -> SlurmStack:
    """The other stack, on a cluster that is put right after the test."""
    assert cluster is stack_beside.cluster
    return stack_beside
