"""The demo as a newcomer runs it, on a stack of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(450)
def test_the_demo_trains_exports_and_evaluates_a_classifier_and_reads_its_accuracy_from_the_copied_files(
    tmp_path: Path,
) -> None:
    stack = Stack(tmp_path)
    environ = os.environ | {"HOME": str(tmp_path), "TIDEGATE_HOME": str(tmp_path)}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "infra.demo"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=420,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        for words in (
            "step 1/3 train",
            "✓ running job",
            "round 5/5",
            "step 2/3 export",
            "step 3/3 eval",
            "gpu_seconds",
        ):
            assert words in ended.stdout
        picture = Path(ended.stdout.partition("picture      ")[2].splitlines()[0])
        assert picture.read_bytes().startswith(b"\x89PNG")
        accuracy = float(ended.stdout.partition("accuracy     ")[2].split()[0])
        assert accuracy >= 0.95
    finally:
        stack.down()
