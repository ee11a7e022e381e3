"""One history: a load, faults while it runs, and the judgement. Everything random comes from one seed."""

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shared.runtime.failpoints import POINTS
from tests.chaos.evidence import all_end_right
from tests.chaos.load import Load
from tests.chaos.orders import Campaign, Fault, random_faults
from tests.chaos.stand import Stand
from tests.chaos.wanted import KINDS

_FIRST: Final = 2 * len(KINDS)
_MORE: Final = len(KINDS)
_MOST: Final = 40 * len(KINDS)
_MORE_SECONDS: Final = 1.0
FAULT_SECONDS: Final = 240
"""How long a point may go without being passed, though jobs keep coming."""
SETTLE_SECONDS: Final = 300
_number = itertools.count(1)


@dataclass(frozen=True)
class History:
    """What happened in one."""

    seed: int
    faults: tuple[Fault, ...]
    jobs: int
    seconds: float
    complaint: str | None = None

    def told(self) -> dict[str, Any]:
        """As a test's report carries it, from a worker too."""
        return {
            "seed": self.seed,
            "jobs": self.jobs,
            "seconds": self.seconds,
            "right": self.complaint is None,
            "faults": [(fault.service, fault.point, fault.word) for fault in self.faults],
        }

    def __str__(self) -> str:
        how = "right" if self.complaint is None else f"WRONG: {self.complaint}"
        faults = "; ".join(str(fault) for fault in self.faults)
        return f"seed {self.seed}: {self.jobs} jobs, {self.seconds:.0f} s, {how} ({faults})"


def happen(stand: Stand, seed: int, ledger: Path, faults: Sequence[Fault] | None = None) -> History:
    """Run the history of a seed, with the faults that are given or those that the seed makes. Never raises for what it
    finds: that is in its complaint."""
    rng = random.Random(seed)
    faults = random_faults(rng) if faults is None else list(faults)
    campaign = Campaign(stand.orders, faults)
    begun = time.monotonic()
    load = Load(stand.patient(), ledger, f"h{next(_number)}-{seed:x}", rng)
    complaint = None
    try:
        _run(load, campaign)
        costly = sum(POINTS[fault.point].costs_the_run for fault in campaign.done)
        all_end_right(stand, load, SETTLE_SECONDS, casualties=costly)
    except AssertionError as error:
        complaint = str(error)
    finally:
        campaign.end()
    return History(seed, tuple(campaign.done), len(load.wanted), time.monotonic() - begun, complaint)


def _run(load: Load, campaign: Campaign) -> None:
    """Jobs come for as long as a fault waits for somebody to pass."""
    load.submit(_FIRST)
    campaign.begin()
    submitted = time.monotonic()
    deadline = time.monotonic() + FAULT_SECONDS
    while not campaign.over:
        campaign.step()
        load.drive()
        if campaign.waits_for and time.monotonic() - submitted > _MORE_SECONDS and len(load.wanted) < _MOST:
            load.submit(_MORE)
            submitted = time.monotonic()
        waits_for = ", ".join(str(fault) for fault in campaign.waits_for)
        assert time.monotonic() < deadline or not waits_for, f"nobody passed in {FAULT_SECONDS} s: {waits_for}"
        time.sleep(0.02)
