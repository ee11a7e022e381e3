"""A step of the model: a function from a state to the states that may follow, and the code that it stands for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.model.state import State, World

Next = tuple[str, State]
"""What happened, in words, and the state after it."""
Follow = Callable[[World, State], Iterator[Next]]


@dataclass(frozen=True)
class Step:
    """One kind of step. `stands_for`: `module:name` of the function of the product, or the part of the world that acts.

    `helps`: it happens by itself sooner or later, so a job may rely on it. Faults and people's wishes do not.
    `at_once`: it changes nothing that anybody else reads, so it need not be tried after steps of others too.
    """

    follow: Follow
    stands_for: str
    helps: bool
    at_once: bool

    @property
    def name(self) -> str:
        return self.follow.__name__

    @property
    def text(self) -> str:
        """What it says of itself."""
        return (self.follow.__doc__ or "").split("\n\n")[0].replace("\n    ", " ")


STEPS: list[Step] = []
"""Every step of the model, in the order of their definition."""


def step(stands_for: str, *, helps: bool = True, at_once: bool = False) -> Callable[[Follow], Follow]:
    """Declare a step."""

    def declare(follow: Follow) -> Follow:
        STEPS.append(Step(follow, stands_for, helps, at_once))
        return follow

    return declare
