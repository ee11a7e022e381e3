"""A replica of each service is frozen with SIGSTOP at its worst failpoint for 30 s, and goes on.

Worst is where it has decided and not yet done: its late write must not be accepted, and nothing may wait for it.
"""

import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.evidence import all_end_right, what_counts
from tests.chaos.ground import Ground
from tests.chaos.load import Load, a_ledger
from tests.chaos.orders import Campaign, Fault
from tests.chaos.report import PROPERTY
from tests.chaos.storm import FAULT_SECONDS, SETTLE_SECONDS, History

FROZEN_SECONDS = 30
WORST = [
    Fault("api", "commit.before", word="stop"),
    Fault("api", "publish.before", word="stop"),
    Fault("gatekeeper", "commit.before", word="stop"),
    Fault("stager", "rename.before", word="stop"),
    Fault("stager", "copy.after", word="stop"),
    Fault("launcher", "submit.before", word="stop"),
    Fault("launcher", "lease.after", word="stop"),
    Fault("watcher", "observe.after", word="stop"),
    Fault("metering", "commit.before", word="stop"),
]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(lambda: tmp_path_factory.mktemp("frozen"))
    yield made
    made.end()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", WORST, ids=str)
def test_the_others_go_on_without_a_frozen_replica_and_accept_nothing_that_it_writes_late(
    ground: Ground, fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    stand = ground.stand
    begun = time.monotonic()
    complaint: str | None = f"it was not judged (seed {seed})"
    with a_ledger() as ledger:
        load = Load(stand.patient(), ledger, f"frozen-{seed:x}", random.Random(seed))
        asleep = Fault(fault.service, fault.point, word="stop", seconds=float("inf"))
        campaign = Campaign(stand.orders, [asleep])
        try:
            campaign.begin()
            until = time.monotonic() + FAULT_SECONDS
            while campaign.waits_for:
                load.submit(7)
                campaign.step()
                assert time.monotonic() < until, f"nobody passed in {FAULT_SECONDS} s"
                time.sleep(0.5)
            frozen = time.monotonic()
            load.submit(14)
            all_end_right(stand, load, SETTLE_SECONDS, somebody_is_frozen=True)
            ended = time.monotonic()
            time.sleep(max(0.0, FROZEN_SECONDS - (ended - frozen)))
            before = what_counts(stand, load)
            campaign.end()
            all_end_right(stand, load, SETTLE_SECONDS)
            time.sleep(2)  # for a write that comes late though everything is done
            assert what_counts(stand, load) == before, "who had been frozen wrote something"
            complaint = None
            print(f"{fault}: the others were done after {ended - frozen:.1f} s")
        finally:
            campaign.end()
            history = History(seed, tuple(campaign.done), len(load.wanted), time.monotonic() - begun, complaint)
            record_property(PROPERTY, history.told())
