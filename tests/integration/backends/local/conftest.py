"""The local backend under test: real host, real supervisors, real processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.backends.local.harness import Backend


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend whose home lies in a directory with mode 0700 and whose host runs with 8 virtual GPUs."""
    home = tmp_path / "closed" / "home"
    home.mkdir(parents=True)
    home.parent.chmod(0o700)
    backend = Backend(home / "local")
    await backend.start_host("--virtual-gpus", "8")
    yield backend
    await backend.end()
