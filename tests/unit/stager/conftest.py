"""What several tests of the stager begin with."""

from pathlib import Path

import pytest

from tests.unit.stager.attempts import Job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)
