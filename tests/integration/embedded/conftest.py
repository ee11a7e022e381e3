"""One stack with replicas for the tests that need a whole one and leave it as they found it."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.embedded import commands
from tests.e2e.stacks import Stack

REPLICATED = ("--virtual-gpus", "2", "--replicas", "gatekeeper=3,api=2")


@pytest.fixture(scope="session")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The run's stack, with two processes of api and three of the gatekeeper."""
    running = Stack(tmp_path_factory.mktemp("replicated"))
    running.up(*REPLICATED)
    yield running
    running.down()


def rows_of(stack: Stack) -> dict[str, dict[str, Any]]:
    """What `ps` shows, by name, without the cost of a process for each look."""
    return {row["name"]: row for row in commands.ps(stack.home)}
