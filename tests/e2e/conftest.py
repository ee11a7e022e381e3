"""One embedded stack for all end-to-end tests, started and stopped by the command that a person uses."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The run's stack, with 8 virtual GPUs."""
    running = Stack(tmp_path_factory.mktemp("stack"))
    running.up("--virtual-gpus", "8")
    yield running
    running.down()


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that is not there yet, in a folder that jobs of every tenant may look into."""
    with tempfile.TemporaryDirectory(prefix="tidegate-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "gate"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small working directory: a script, a helper that it reads, and a program."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import pathlib\nprint('learned from', pathlib.Path('data.txt').read_text().strip())\n"
    )
    (folder / "data.txt").write_text("forty-two\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran $TIDEGATE_ATTEMPT\n")
    (folder / "run.sh").chmod(0o755)
    return folder
