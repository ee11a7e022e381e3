"""Visits every state that can be reached, breadth first, and judges each: what is wrong comes with a shortest trace."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.model import ending, launching, running  # noqa: F401 - declare the steps
from tests.model.state import LIVE, OVER, Runner, State, World
from tests.model.step import STEPS

_AT_ONCE = tuple(step for step in STEPS if step.at_once)
_OTHERS = tuple(step for step in STEPS if not step.at_once)


@dataclass(frozen=True)
class Violation:
    """What is wrong, and what happened until then, in words."""

    problem: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"  {number:2}. {said}" for number, said in enumerate(self.trace, 1)] + [f"  => {self.problem}"]
        )


@dataclass(frozen=True)
class Result:
    """How many states and steps were visited, and the first violation, if there is one."""

    states: int
    steps: int
    violation: Violation | None


def explore(world: World) -> Result:
    """Every state from the first on; stops at the first one that is wrong."""
    first = State()
    came: dict[State, tuple[State, str] | None] = {first: None}
    helped_by: dict[State, list[State]] = {}
    queue, steps = deque([first]), 0
    while queue:
        state = queue.popleft()
        here = _key(state)
        for said, after, helps in follow(world, state):
            steps += 1
            there = _key(after)
            is_new = there not in came
            if is_new:
                came[there] = (here, said)
                queue.append(after)
            if helps:
                helped_by.setdefault(there, []).append(here)
            problem = wrong(state, after)
            if problem is not None:
                return Result(len(came), steps, Violation(problem, (*_trace(came, here), said)))
    lost = _lost(came, helped_by)
    if lost is None:
        return Result(len(came), steps, None)
    return Result(len(came), steps, Violation("the job is lost: nothing leads to its end", _trace(came, lost)))


def _key(state: State) -> State:
    """The same for two states that differ only in which launcher is called the first."""
    first, second = state.launchers
    return state._replace(launchers=(second, first)) if second < first else state


def follow(world: World, state: State) -> Iterator[tuple[str, State, bool]]:
    """What may happen next, and whether it is sure to happen sooner or later."""
    for step in _AT_ONCE:
        for said, after in step.follow(world, state):
            yield said, after, step.helps
            return
    for step in _OTHERS:
        for said, after in step.follow(world, state):
            yield said, after, step.helps


def wrong(before: State, after: State) -> str | None:
    """What must never be, in a state or in a step."""
    live = [runner for runner in after.runners if runner.at in LIVE]
    for place, one in enumerate(live):
        for other in live[place + 1 :]:
            if not _is_overtaken(after, one, other):
                return "two runs of one attempt are alive"
    if after.row == "sealed" and live:
        started = sum(runner.at in LIVE for runner in before.runners) < len(live)
        if before.row == "sealed" and started:
            return "a command starts after the seal"
        return "the attempt is sealed while something of it lives"
    if before.row == "sealed" and after.row != "sealed":
        return "the vote is taken back"
    if after.votes > 1:
        return "the vote is given twice"
    if after.refused:
        return "an attempt that is being ended is told as refused"
    return None


def _is_overtaken(state: State, one: Runner, other: Runner) -> bool:
    """Whether `one` is the segment before `other`, and has not looked for a higher claim since there is one.

    Between a requeue of what is alive after all and its next look both may run; the design gives no more than that.
    """
    return one.submission == other.submission and one.restart < other.restart and not one.looked_again


def _lost(came: dict[State, tuple[State, str] | None], helped_by: dict[State, list[State]]) -> State | None:
    """The earliest state from which no sure step after another leads to the end, found from the ends backwards."""
    found = [state for state in came if _is_over(state)]
    safe = set(found)
    while found:
        for before in helped_by.get(found.pop(), ()):
            if before not in safe:
                safe.add(before)
                found.append(before)
    return next((state for state in came if state not in safe and not _nobody_is_up(state)), None)


def _is_over(state: State) -> bool:
    """The attempt is sealed, and the end of every run is known."""
    return state.row == "sealed" and all(runner.at in OVER for runner in state.runners)


def _nobody_is_up(state: State) -> bool:
    """Both launchers are down for good: nothing can be asked of them."""
    return not any(launcher.up for launcher in state.launchers)


def _trace(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    said = []
    where = came[state]
    while where is not None:
        said.append(where[1])
        where = came[where[0]]
    return tuple(reversed(said))
