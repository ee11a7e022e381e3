"""Kinds of jobs, what each does and must come to, and which pipelines there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

Alone = Literal["plain", "output", "files", "failing", "gpu", "stopped", "stopped_at_once", "refused"]
Step = Literal["step", "failing_step", "unreached_step"]
Kind = Alone | Step
KINDS: Final[tuple[Alone, ...]] = get_args(Alone)

_STEP: Final = 'sleep $1; printf "%s," "$TIDEGATE_JOB_ID" >> done.txt'
SCRIPTS: Final[Mapping[Kind, str]] = {
    "plain": "sleep $1",
    "output": 'sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt',
    "files": 'test "$(cat data/given.txt)" = given || exit 9; sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt',
    "failing": 'sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt; exit 7',
    "gpu": "sleep $1",
    "stopped": "while :; do sleep 0.1; done",
    "stopped_at_once": "while :; do sleep 0.1; done",
    "refused": "true",
    "step": _STEP,
    "failing_step": f"{_STEP}; exit 7",
    "unreached_step": _STEP,
}
"""What each runs, with its length as the first argument. A step writes its id behind those of the steps before it."""

CHAINS: Final[Sequence[tuple[Step, ...]]] = (
    ("step", "step", "step"),
    ("step", "failing_step", "unreached_step"),
    ("failing_step", "unreached_step"),
    ("step", "step"),
    ("failing_step", "unreached_step", "unreached_step"),
    ("step", "failing_step"),
)
"""The pipelines that are submitted in turn."""


@dataclass(frozen=True)
class Wanted:
    """What a job must come to."""

    kind: Kind
    gpus: int
    after: tuple[str, ...] = ()
    """The steps of its pipeline before it."""

    @property
    def state(self) -> str:
        match self.kind:
            case "failing" | "failing_step" | "refused":
                return "FAILED"
            case "stopped" | "stopped_at_once" | "unreached_step":
                return "STOPPED"
            case _:
                return "SUCCEEDED"

    @property
    def code(self) -> int | None:
        """Its exit code; None where a signal ends it, or it may never have begun."""
        match self.kind:
            case "failing" | "failing_step":
                return 7
            case "stopped" | "stopped_at_once" | "refused" | "unreached_step":
                return None
            case _:
                return 0

    @property
    def reason(self) -> str | None:
        """Its end reason, where one of its own is to be said whatever was killed."""
        match self.kind:
            case "refused":
                return "input_invalid"
            case "unreached_step":
                return "upstream_failed"
            case _:
                return None

    @property
    def files(self) -> int:
        """How many outputs come back."""
        return int(self.kind in ("output", "files", "failing", "step", "failing_step"))

    @property
    def must_run(self) -> bool:
        """Only what was stopped at once may end without having run; what was refused or not reached does."""
        return self.kind not in ("stopped_at_once", "refused", "unreached_step")

    @property
    def is_step(self) -> bool:
        return self.kind in get_args(Step)

    def content(self, job: str) -> str:
        """What is in its output: a step's holds what those before it brought back."""
        return "".join(f"{one}," for one in (*self.after, job)) if self.is_step else job

    def where_reached(self, states: Mapping[str, str]) -> "Wanted":
        """What a step must come to, given how those before it ended: a killed supervisor may have ended one of them."""
        reached = all(states.get(job) == "SUCCEEDED" for job in self.after)
        return self if reached else replace(self, kind="unreached_step")


def word_of(states: Sequence[str]) -> str:
    """The one word of a pipeline whose steps have ended so, where nobody stopped one."""
    if all(state == "SUCCEEDED" for state in states):
        return "succeeded"
    return "partial" if states[0] == "SUCCEEDED" else "failed"
