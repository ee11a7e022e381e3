"""PostgreSQL is restored from a backup while jobs run: nothing runs twice, and what cannot be known is said.

Jobs of before the backup end right, whatever of them happened in the lost time: those that were launched in it are
adopted. Jobs that were submitted after the backup are nobody's: they run once, and their facts are listed as orphans.
Both sizes are `make test-long`'s: a few jobs and a backup of a few seconds ago, and 120 jobs and one of a minute ago.
In `make test` a restore while jobs run is `tests/integration/embedded/test_backup.py`, and its epoch `tests/guards`.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.backends.local import layout
from tests.chaos.evidence import all_end_right, in_flight
from tests.chaos.load import Load, a_ledger
from tests.chaos.report import PROPERTY
from tests.chaos.stand import Stand
from tests.chaos.storm import SETTLE_SECONDS, History
from tests.chaos.wanted import Alone
from tests.e2e.stacks import eventually, processes_with

UNTOUCHED: tuple[Alone, ...] = ("plain", "output", "files", "failing", "gpu")
"""No stops: one that was given in the lost time is lost with it."""


@dataclass(frozen=True)
class Size:
    """How many jobs, how long each works, how old the backup is."""

    jobs: int
    job_seconds: tuple[float, float]
    lost_seconds: float
    slots: int


SIZES = [
    pytest.param(Size(20, (0.1, 6), 5, 6), id="few jobs"),
    pytest.param(Size(120, (1, 80), 60, 40), id="120 jobs and a minute"),
]

_HELD = " UNION ALL ".join(
    f"SELECT '{table}' AS table, job, attempt FROM {table} WHERE job NOT IN (SELECT id FROM api.jobs)"
    for table in ("gatekeeper.reservations", "gatekeeper.waiting", "launcher.launches", "stager.staging")
)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
def test_nothing_runs_twice_after_a_restore_and_what_cannot_be_known_is_said(
    size: Size, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    begun = time.monotonic()
    (tmp_path / "home").mkdir()
    stand = Stand(tmp_path / "home", slots=size.slots, gpus=2 * size.slots)
    stand.begin()
    complaint: str | None = f"it was not judged (seed {seed})"
    with a_ledger() as ledger, a_ledger() as lost_ledger:
        rng = random.Random(seed)
        loads = (
            Load(stand.patient(), file, f"{name}-{seed:x}", rng, seconds=size.job_seconds, kinds=UNTOUCHED, gated=True)
            for name, file in (("kept", ledger), ("lost", lost_ledger))
        )
        load, lost = loads
        try:
            load.submit(size.jobs)
            eventually(lambda: len(load.lines()) > size.slots // 2, "jobs to run", SETTLE_SECONDS)
            backup = tmp_path / "backup.tar"
            taken = stand.cli("admin", "backup", str(backup), seconds=SETTLE_SECONDS)
            assert taken.code == 0, taken.err
            known = set(load.lines())
            lost.submit(size.slots - 1)
            load.open_the_gate()
            time.sleep(size.lost_seconds)
            eventually(lambda: set(load.lines()) - known and lost.lines(), "jobs to begin", SETTLE_SECONDS)
            launched = len(set(load.lines()) - known)
            print(
                f"lost time: {launched} of {size.jobs} jobs began in it, {in_flight(stand, load)} are in flight, "
                f"{len(lost.lines())} of {len(lost.wanted)} that it brought have begun",
                file=sys.stderr,
            )
            _restored(stand, backup)
            lost.open_the_gate()
            load.connect(stand.patient())
            load.submit(5)
            all_end_right(stand, load, SETTLE_SECONDS)
            _nobody_knows_what_was_lost(stand, lost)
            complaint = None
        finally:
            history = History(seed, (), len(load.wanted), time.monotonic() - begun, complaint)
            record_property(PROPERTY, history.told())
            stand.end()


def _restored(stand: Stand, backup: Path) -> None:
    """The stack stops, its database goes back, the stack starts; jobs run all the while."""
    down = stand.cli("down", seconds=180)
    assert down.code == 0, down.err
    assert stand.supervisor is not None
    stand.supervisor.wait(60)
    restored = stand.cli("admin", "restore", str(backup), seconds=180)
    assert restored.code == 0, restored.err
    stand.begin()


def _nobody_knows_what_was_lost(stand: Stand, lost: Load) -> None:
    """Each ran at most once, none is in the record, and every one that the backend showed is among the orphans."""
    eventually(lambda: not processes_with(str(lost.ledger)), "the jobs of the lost time to end", SETTLE_SECONDS)
    ran = lost.ran()
    assert set(ran.values()) <= {1}, "a job of the lost time ran twice"
    (rows,) = stand.rows(("SELECT id FROM api.jobs WHERE id = ANY($1)", lost.jobs))
    assert not rows, "a job of the lost time is back"
    (held,) = stand.rows((_HELD,))
    assert not held, f"something is held for jobs that nobody knows: {[tuple(row) for row in held]}"

    def listed() -> bool:
        items = stand.patient(admin=True).call("GET", "/v1/orphans")["items"]
        return {line.split()[0] for line in ran} <= {item["job"] for item in items}

    eventually(listed, "every job of the lost time that ran to be listed as an orphan", SETTLE_SECONDS)

    def alone() -> bool:
        attempts = stand.place.local.glob(f"{layout.WORK}/*/*/a*")
        return all(len(list(attempt.glob("e[0-9]*"))) <= 1 for attempt in attempts)

    eventually(alone, "every attempt to have one working directory", SETTLE_SECONDS)
