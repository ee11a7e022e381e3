"""Who is frozen is woken, whatever the test waits for meanwhile."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.runtime.failpoints import FOLDER
from tests.chaos.orders import Campaign, Fault, Orders

ASLEEP = Fault("api", "commit.before", word="stop", seconds=0.2)
PASSES = "import sys; from shared.runtime import failpoints; failpoints.use('api'); failpoints.reach('commit.before')"
SECONDS = 60


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


@pytest.fixture
def passing(orders: Orders) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that have passed a place; none stays."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def _pass(orders: Orders) -> subprocess.Popen[bytes]:
    environ = {FOLDER: str(orders.folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", PASSES], env=environ)


def test_a_frozen_process_is_woken_in_time_though_the_test_waits_for_something_else(
    orders: Orders, passing: list[subprocess.Popen[bytes]]
) -> None:
    campaign = Campaign(orders, [ASLEEP])
    campaign.begin()
    try:
        passing.append(_pass(orders))
        assert passing[0].wait(SECONDS) == 0
        assert [str(fault) for fault in campaign.done] == [str(ASLEEP)]
    finally:
        campaign.end()


def test_the_end_wakes_also_who_froze_without_having_been_seen(
    orders: Orders, passing: list[subprocess.Popen[bytes]]
) -> None:
    """As the last thing that a history does: nobody looks any more."""
    campaign = Campaign(orders, [ASLEEP])
    campaign.begin()
    campaign._ended.set()
    passing.append(_pass(orders))
    deadline = time.monotonic() + SECONDS
    while not list((orders.folder / "obeyed").iterdir()):
        assert time.monotonic() < deadline, "nobody passed"
        time.sleep(0.01)
    campaign.end()
    assert passing[0].wait(SECONDS) == 0
