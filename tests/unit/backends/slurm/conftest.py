"""An attempt for each shell that /bin/sh may be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.backends.slurm.runs import SHELLS, Attempt


@pytest.fixture(params=SHELLS)
def attempt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attempt]:
    """An attempt's directory, its scripts run by this shell."""
    made = Attempt(tmp_path / "a1", SHELLS[request.param])
    yield made
    made.clean_up()
