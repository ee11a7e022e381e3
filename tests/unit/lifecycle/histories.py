"""Hypothesis strategies over causal histories, and what makes two records the same."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from shared.lifecycle.record import JobRecord, Workstation
from tests.unit.lifecycle.backend import Choices
from tests.unit.lifecycle.jobs import a_job
from tests.unit.lifecycle.world import Entry, World

T = TypeVar("T")
LENGTHS = (10, 20, 40, 80, 120, 160, 240)


class Seeded:
    """Choices out of one seed: a failing history shrinks to its shortest prefix."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world in which one job has lived for a while: `log` says what happened to it."""
    choices = Seeded(draw(st.integers(0, 2**32 - 1)))
    kind = choices.pick(("batch", "batch", "workstation"))
    job = a_job(
        gpus=choices.pick((2, 0)),
        outputs=choices.pick((True, False)),
        retries=choices.pick((0, 1)),
        infrastructure=choices.pick((0, 2, 5)),
        by_hand=choices.pick((20, 2)),
        kind=kind,
        time_limit=choices.pick((None, 90)),
        workstation=Workstation(idle_suspend_seconds=choices.pick((10, None))) if kind == "workstation" else None,
    )
    world = World(choices, job.record)
    world.live(draw(st.sampled_from(LENGTHS)))
    return world


def shuffled(choices: Choices, items: Iterable[T], *, again: int = 2) -> list[T]:
    """The same things in another order, some of them more than once."""
    mixed = list(items)
    mixed += [choices.pick(mixed) for _ in range(again) if mixed]
    for place in range(len(mixed) - 1, 0, -1):
        other = choices.pick(range(place + 1))
        mixed[place], mixed[other] = mixed[other], mixed[place]
    return mixed


def in_batches(choices: Choices, items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The same things, cut into batches somewhere."""
    rest = items
    while rest:
        size = choices.pick(range(1, len(rest) + 1))
        yield rest[:size]
        rest = rest[size:]


def between_decisions(log: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The runs of evidence between two neighbouring decisions, verdicts among them."""
    run: list[Entry] = []
    for entry in log:
        if not entry.is_decision:
            run.append(entry)
        elif run:
            yield run
            run = []
    if run:
        yield run


def without_seq(record: JobRecord) -> JobRecord:
    """A record as it is compared: its count of versions left out."""
    return record.model_copy(update={"seq": 0})
