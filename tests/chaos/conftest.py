"""A stack of its own for what kills processes."""

from collections.abc import Iterator

import pytest

from tests.e2e.stacks import Stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("chaos"))
    running.up("--virtual-gpus", "8")
    yield running
    running.down()
