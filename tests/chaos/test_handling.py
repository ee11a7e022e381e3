"""A user and an admin do random things to jobs, pipelines and workstations while replicas are killed and frozen.

What must hold, whatever is asked when and whoever dies: no submission's command runs twice, no two of one attempt run,
no attempt begins while something of another lives, nothing of a paused or ended job runs, each answer is true, the
record is what its log gives, what an admin keeps only an admin lets go on, what is left alone is suspended and what
failed is tried again as often as was said, and once every job is deleted nothing is left of any.

The sample kills where a command is in hand: the api with a decision that it has not committed and with one that nobody
was told, the launcher about to stop what is resumed next, the stager about to stage in again what it has copied back.
The first of them stands in the ordinary run, which is to stay short: without automatic retries, and workstations that
end by themselves.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.chaos.ground import Ground, seeds_asked
from tests.chaos.handling import happen
from tests.chaos.orders import Fault
from tests.chaos.report import PROPERTY

SAMPLE: Sequence[Sequence[Fault]] = (
    (
        Fault("api", "commit.before", nth=3),
        Fault("launcher", "kill.before"),
        Fault("stager", "rename.before", times=2),
    ),
    (
        Fault("api", "commit.after", nth=5),
        Fault("launcher", "revoke.after", times=2),
        Fault("gatekeeper", "ack.before"),
    ),
    (
        Fault("launcher", "submit.after"),
        Fault("stager", "copy.after", nth=2),
        Fault("metering", "commit.after"),
    ),
)
INFRASTRUCTURE_RETRIES = 1
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(
        lambda: tmp_path_factory.mktemp("handling"), infrastructure_retries=INFRASTRUCTURE_RETRIES, happens=happen
    )
    yield made
    made.end()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, len(SAMPLE)))])
def test_what_a_person_asks_is_done_once_and_leaves_nothing_behind(
    ground: Ground, number: int, record_property: Record
) -> None:
    history = ground.happen(SAMPLE[number], seed=number, brief=number == 0)
    record_property(PROPERTY, history.told())
    assert history.complaint is None, str(history)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_what_a_person_asks_is_done_once_whatever_is_killed_and_frozen(ground: Ground, record_property: Record) -> None:
    wrong = []
    for seed in seeds_asked():
        history = ground.happen(seed=seed)
        record_property(PROPERTY, history.told())
        wrong += [str(history)] if history.complaint else []
    assert not wrong, "\n".join(wrong)
