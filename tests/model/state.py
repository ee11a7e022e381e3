"""What the model knows of one attempt: the launcher's row, two launchers, the host, the directory, the runners.

Everything is small and counted, so that all interleavings can be visited. A frozen process is one that takes no step
for a while: the search tries that for every process at every place, so freezing needs no step of its own.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

Row = Literal["intent", "submitting", "submitted", "revoking", "sealed"]
Doing = Literal["nothing", "leased", "sending", "waiting", "answered"]
Answer = Literal["", "taken", "later", "absent", "revoked"]
Ending = Literal["nothing", "half", "read", "sealable"]
Run = Literal["forked", "looked early", "claimed", "looked", "running", "exited", "never ran", "gone", "left processes"]
Wish = Literal["none", "asked", "written"]


class Launcher(NamedTuple):
    """One replica: what its launching loop does (with which lease), and how far its ending loop is."""

    up: bool = True
    doing: Doing = "nothing"
    token: int = 0
    answer: Answer = ""
    ending: Ending = "nothing"
    claims: tuple[int, ...] = ()
    owns: bool = False


class Runner(NamedTuple):
    """One process that is to run the command: of which submission, after how many requeues, how far it is.

    `looked_again`: it has looked for a higher claim since there is one.
    """

    submission: int
    restart: int = 0
    at: Run = "forked"
    looked_again: bool = False


class State(NamedTuple):
    """One moment. Leases have the numbers 1, 2, …; those up to `late` have run out."""

    row: Row = "intent"
    token: int = 0
    asked: bool = False
    leases: int = 0
    late: int = 0
    wish: Wish = "none"
    told: bool = False
    launchers: tuple[Launcher, Launcher] = (Launcher(), Launcher())
    orders: tuple[int, ...] = ()
    checked: int = 0
    claim: int = 0
    higher_claim: bool = False
    revoked: bool = False
    stop: bool = False
    runners: tuple[Runner, ...] = ()
    faults: int = 0
    requeues: int = 0
    purged: bool = False
    votes: int = 0
    refused: bool = False


class Guard(StrEnum):
    """What keeps a job from running twice or being lost; each can be taken out of the model."""

    CLAIM = "the claim is taken exclusively"
    LOOK = "a runner looks for `revoked`"
    CLAIM_FIRST = "it takes the claim first and looks second"
    TOKEN = "an answer is recorded only under the lease that asked"
    LEASE = "a lease runs out at its deadline"
    NOT_AFTER = "the backend refuses an order that comes after its deadline"
    REVOKING_FIRST = "`revoking` is committed before `revoked` is created"
    READ_AFTER = "claims are read after `revoked` is there"
    AWAIT = "the end is awaited before the vote"
    SWEEP = "what a dead runner left is swept before the vote"
    ONE_VOTE = "an ending is written only where the row still says `revoking`"
    HIGHER_CLAIM = "a runner that sees a higher claim kills its command"
    ONCE = "the backend takes a submission once"


@dataclass(frozen=True)
class World:
    """What may happen: which guards stand, and how much goes wrong in one history.

    `faults`: crashes of launchers, host and runners, leases that run out while their launcher is frozen, answers that
    do not come, and orders that find the machine full, together. `purge`: long after the seal, when nothing is under
    way any more but a frozen launcher, the attempt's directory may be removed.
    """

    without: frozenset[Guard] = frozenset()
    faults: int = 1
    requeues: int = 1
    purge: bool = False

    def has(self, guard: Guard) -> bool:
        """Whether it stands."""
        return guard not in self.without


LIVE: frozenset[Run] = frozenset({"running", "left processes"})
HOLDS_CLAIM: frozenset[Run] = frozenset({"claimed", "looked", "running", "exited", "gone", "left processes"})
OVER: frozenset[Run] = frozenset({"exited", "never ran", "gone"})


def with_launcher(state: State, number: int, launcher: Launcher) -> tuple[Launcher, Launcher]:
    """Both launchers, the one changed."""
    first, second = state.launchers
    return (launcher, second) if number == 1 else (first, launcher)


def with_runner(state: State, place: int, *, at: Run) -> tuple[Runner, ...]:
    """All runners, the one moved on."""
    runners = list(state.runners)
    runners[place] = runners[place]._replace(at=at)
    return tuple(runners)
