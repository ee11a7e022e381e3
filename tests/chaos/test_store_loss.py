"""The stores are lost while jobs run: the broker's goes back in time or is emptied, PostgreSQL is shut down at once.

Every job ends right and ran once, as after a kill. `make test` has few jobs and a copy of the store that is a few
seconds old; `make test-long` has 200 jobs in flight and a copy that is 20 s older.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.evidence import all_end_right, in_flight
from tests.chaos.ground import Ground
from tests.chaos.load import Load, a_ledger
from tests.chaos.report import PROPERTY
from tests.chaos.stand import Stand
from tests.chaos.storm import SETTLE_SECONDS, History
from tests.e2e.stacks import eventually

Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Size:
    """How many jobs are submitted for the loss, how many are in flight at it at least, how long each works, how much
    older the copy of the store is."""

    jobs: int
    in_flight: int
    job_seconds: tuple[float, float]
    older_seconds: float


SMALL = Size(28, 1, (0.05, 2), 3)
FULL = Size(250, 200, (5, 60), 20)  # some are refused or stopped, and some are steps that wait for others
_ROUNDS = 2
_FEWEST = 8
SIZES = [pytest.param(SMALL, id="few jobs"), pytest.param(FULL, id="200 jobs", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(lambda: tmp_path_factory.mktemp("losses"), slots=256, gpus=256)
    yield made
    made.end()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("older", [True, False], ids=["older", "empty"])
@pytest.mark.parametrize("size", SIZES)
def test_jobs_end_right_and_run_once_though_the_broker_loses_what_it_had(
    ground: Ground, size: Size, older: bool, record_property: Record
) -> None:
    """nats-server is killed, and comes back with a copy of its store that is so old, or with none."""

    def lose(stand: Stand, load: Load) -> None:
        store, kept = stand.place.nats / "store", stand.home / "store.kept"
        load.submit(size.jobs // 2)
        eventually(load.lines, "a job to run")
        if older:
            _copied_while_it_stands_still(stand, store, kept)
        until = time.monotonic() + size.older_seconds
        while time.monotonic() < until:
            load.drive()
            time.sleep(0.05)
        _fill(stand, load, size)
        before = stand.entries()["nats"]
        _kill(stand, "nats", signal.SIGKILL, meanwhile=lambda: _replace(store, kept))
        stand.usage_read = 0
        eventually(lambda: stand.entries()["nats"].restarts > before.restarts, "nats to be started again")
        load.submit(7)

    _history(ground, record_property, size, lose)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
def test_jobs_end_right_and_run_once_though_postgresql_is_shut_down_at_once(
    ground: Ground, size: Size, record_property: Record
) -> None:
    def lose(stand: Stand, load: Load) -> None:
        load.submit(size.jobs // 2)
        eventually(load.lines, "a job to run")
        _fill(stand, load, size)
        before = stand.entries()["postgres"]
        assert before.identity is not None
        before.identity.send(signal.SIGQUIT)  # the immediate shutdown: no session ends, nothing is written out
        eventually(lambda: stand.entries()["postgres"].restarts > before.restarts, "its restart")
        load.submit(7)

    _history(ground, record_property, size, lose)


def _history(ground: Ground, record: Record, size: Size, lose: Callable[[Stand, Load], None]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    stand = ground.stand
    begun = time.monotonic()
    with a_ledger() as ledger:
        rng = random.Random(seed)
        load = Load(stand.patient(), ledger, f"loss-{seed:x}", rng, seconds=size.job_seconds)
        complaint: str | None = f"it was not judged (seed {seed})"
        try:
            lose(stand, load)
            all_end_right(stand, load, SETTLE_SECONDS)
            complaint = None
        finally:
            if complaint is not None:
                ground.end()
            record(PROPERTY, History(seed, (), len(load.wanted), time.monotonic() - begun, complaint).told())


def _fill(stand: Stand, load: Load, size: Size) -> None:
    """Submit until as many jobs are in flight as the loss is to meet."""
    for _ in range(_ROUNDS):
        if (missing := size.jobs - in_flight(stand, load)) <= 0:
            break
        load.submit(max(missing, _FEWEST))
    while (found := in_flight(stand, load)) < size.in_flight:  # they ended before they were counted
        load.submit(_FEWEST)
    print(f"{found} jobs were in flight at the loss", file=sys.stderr)


def _copied_while_it_stands_still(stand: Stand, store: Path, kept: Path) -> None:
    """What a crash of the machine would have left at this moment."""
    nats = stand.entries()["nats"].identity
    assert nats is not None
    nats.send(signal.SIGSTOP)
    try:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(store, kept)
    finally:
        nats.send(signal.SIGCONT)


def _kill(stand: Stand, name: str, number: signal.Signals, *, meanwhile: Callable[[], None]) -> None:
    """End a process, and do something before its supervisor starts it again."""
    supervisor = stand.supervisor
    victim = stand.entries()[name].identity
    assert supervisor is not None
    assert victim is not None
    os.kill(supervisor.pid, signal.SIGSTOP)
    try:
        victim.send(number)
        eventually(lambda: not victim.alive(), f"the end of {name}")
        meanwhile()
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)


def _replace(store: Path, kept: Path) -> None:
    shutil.rmtree(store)
    if kept.exists():
        kept.rename(store)
