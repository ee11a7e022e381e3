"""Replicas are killed at failpoints, once and twice in a row, while jobs of every kind run.

The sample takes the points at which a guard is all that stands between a kill and a job that runs twice, is lost or is
metered twice; `make test-long` takes every point of every service.

| guard | killed at |
| --- | --- |
| claim | the runner after it forked, twice: the launcher asks again for what runs already |
| `revoked` | the launcher before it made it, and after it asked a command to end |
| the launcher's row | the launcher with a launch leased, and with an answer that it has not recorded |
| guarded update | api and metering with a batch handled and not acknowledged: all of it comes again |
| tombstone | the gatekeeper with ends handled and not acknowledged, twice |
| seal | the launcher with records released and its row not saying so; the stager after its vote |
| staging epoch | the stager with a directory or outputs whole and not published, twice |
| outbox | whoever relays, with messages that the broker has and the table calls unsent |

The restore epoch has its own test (`test_restore.py`).
"""

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.chaos.ground import Ground, seeds_asked
from tests.chaos.orders import EVERY_PLACE, Fault
from tests.chaos.report import PROPERTY

SAMPLE: Sequence[Sequence[Fault]] = (
    (
        Fault("runner", "spawn.after", times=2),
        Fault("launcher", "revoke.before"),
        Fault("api", "ack.before"),
        Fault("gatekeeper", "ack.before", times=2),
        Fault("metering", "publish.after"),
    ),
    (
        Fault("launcher", "submit.before", times=2),
        Fault("stager", "rename.after", times=2),
        Fault("api", "publish.after"),
        Fault("metering", "ack.before"),
        Fault("watcher", "observe.after"),
    ),
    (
        Fault("launcher", "submit.after"),
        Fault("launcher", "kill.after"),
        Fault("launcher", "release.after"),
        Fault("stager", "copy.after"),
        Fault("stager", "commit.after"),
        Fault("api", "commit.before"),
        Fault("gatekeeper", "publish.after"),
    ),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(lambda: tmp_path_factory.mktemp("chaos"))
    yield made
    made.end()


Record = Callable[[str, object], None]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(len(SAMPLE)))
def test_jobs_end_right_and_run_once_where_a_guard_is_all_that_holds(
    ground: Ground, number: int, record_property: Record
) -> None:
    history = ground.happen(SAMPLE[number], seed=number)
    record_property(PROPERTY, history.told())
    assert history.complaint is None, str(history)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice in a row"])
@pytest.mark.parametrize(("service", "point"), EVERY_PLACE, ids=[".".join(place) for place in EVERY_PLACE])
def test_jobs_end_right_and_run_once_at_every_failpoint(
    ground: Ground, service: str, point: str, times: int, record_property: Record
) -> None:
    history = ground.happen([Fault(service, point, times=times)])
    record_property(PROPERTY, history.told())
    assert history.complaint is None, str(history)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_jobs_end_right_and_run_once_whatever_is_killed_and_frozen(ground: Ground, record_property: Record) -> None:
    wrong = []
    for seed in seeds_asked():
        history = ground.happen(seed=seed)
        record_property(PROPERTY, history.told())
        wrong += [str(history)] if history.complaint else []
    assert not wrong, "\n".join(wrong)
