"""How the tests are spread over the workers of a whole run, see `make test`."""

import os
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

_ONE_STACK: Final = "tests/e2e/"
_ONE_CLUSTER: Final = "tests/slurm/"


class OneStack(LoadFileScheduling):  # type: ignore[misc] # xdist says no types
    """File by file; those that use the run's stack go to one worker, so that it is started once, and so do those that
    use its Slurm cluster."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        if file.startswith(_ONE_CLUSTER):
            return _ONE_CLUSTER
        return _ONE_STACK if file.startswith(_ONE_STACK) and not file.endswith("/test_demo.py") else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes one worker longest begins first: Slurm itself waits for its own clocks."""
    items.sort(key=lambda item: not item.nodeid.startswith(_ONE_CLUSTER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return OneStack(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: most of the time a test waits for a process to start or for a time to pass."""
    return (os.cpu_count() or 1) + 2
