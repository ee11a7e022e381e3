"""The stack on which histories follow one another: a new one where the last went wrong."""

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.load import a_ledger
from tests.chaos.orders import Fault
from tests.chaos.stand import GPUS, SLOTS, Stand
from tests.chaos.storm import History, happen

Happens = Callable[..., History]
"""Given a stack, a seed, a ledger, faults or None, and what is said by name."""
_SEEDS = random.SystemRandom()


class Ground:
    """Histories one after the other, each told to `tell`."""

    def __init__(
        self,
        folder: Callable[[], Path],
        *,
        slots: int = SLOTS,
        gpus: int = GPUS,
        infrastructure_retries: int = 0,
        happens: Happens = happen,
    ) -> None:
        self._folder = folder
        self._happens = happens
        self._slots = slots
        self._gpus = gpus
        self._infrastructure_retries = infrastructure_retries
        self._stand: Stand | None = None
        self.histories: list[History] = []
        self._number = itertools.count(1)

    @property
    def stand(self) -> Stand:
        """A stack on which all is right so far."""
        if self._stand is None:
            home = self._folder() / "home"
            home.mkdir()
            self._stand = Stand(
                home,
                slots=self._slots,
                gpus=self._gpus,
                infrastructure_retries=self._infrastructure_retries,
            )
            self._stand.begin()
        return self._stand

    def happen(self, faults: Sequence[Fault] | None = None, *, seed: int | None = None, **said: Any) -> History:
        """One history; what its seed does not say is chosen anew, and printed with it."""
        seed = _SEEDS.randrange(1 << 32) if seed is None else seed
        with a_ledger() as ledger:
            history = self._happens(self.stand, seed, ledger, faults, **said)
        self.histories.append(history)
        print(f"history {next(self._number)}: {history}", file=sys.stderr, flush=True)
        if history.complaint is not None:
            self.end()
        return history

    def end(self) -> None:
        """Stop what runs; its home stays, with the logs."""
        stand, self._stand = self._stand, None
        if stand is not None:
            stand.end()


def seeds_asked() -> Iterator[int | None]:
    """Those of TIDEGATE_CHAOS_SEEDS, else as many new ones as TIDEGATE_CHAOS_HISTORIES says."""
    given = os.environ.get("TIDEGATE_CHAOS_SEEDS")
    if given:
        return iter([int(seed) for seed in given.split(",")])
    return itertools.repeat(None, int(os.environ.get("TIDEGATE_CHAOS_HISTORIES", "300")))
