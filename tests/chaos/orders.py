"""Orders to the failpoints of a stack: who is killed or frozen where, and whether it has been obeyed."""

import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from shared.runtime.failpoints import POINTS

Word = Literal["kill", "stop"]
_LOOK_SECONDS: Final = 0.02
_ASLEEP_SECONDS: Final = 5


@dataclass(frozen=True)
class Fault:
    """A replica of `service` is killed or frozen at `point`, `times` in a row: whoever passes there next."""

    service: str
    point: str
    word: Word = "kill"
    times: int = 1
    nth: int = 1
    """The how-manieth passing of one process is meant."""
    seconds: float = 0
    """How long what is frozen stays so."""

    def __str__(self) -> str:
        row = f" x{self.times}" if self.times > 1 else ""
        return f"{self.word} {self.service} at {self.point}{row}"


EVERY_PLACE = tuple((service, point) for point, what in POINTS.items() for service in what.services)
"""Each point of each service that has it."""


def every_fault(times: int) -> list[Fault]:
    """One kill, or several in a row, at each place."""
    return [Fault(service, point, times=times) for service, point in EVERY_PLACE]


def random_faults(rng: random.Random) -> list[Fault]:
    """One to five faults at different places, some of them of replicas that are frozen for a while."""
    return [_random_fault(rng, place) for place in rng.sample(EVERY_PLACE, rng.randint(1, 5))]


def _random_fault(rng: random.Random, place: tuple[str, str]) -> Fault:
    nth = rng.choice((1, 1, 2, 3))
    if rng.random() < 0.25:
        return Fault(*place, word="stop", nth=nth, seconds=rng.choice((0.5, 2.0, 6.0, 20.0)))
    return Fault(*place, times=rng.choice((1, 1, 2, 2, 3)), nth=nth)


class Orders:
    """The folder of orders: `armed/`, `obeyed/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "obeyed"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def arm(self, fault: Fault) -> None:
        """Whole or not at all: who passes reads it at any moment."""
        order = self.folder / f"{fault.service}.{fault.point}"
        order.write_text(f"{fault.word} {fault.nth}")
        order.rename(self.folder / "armed" / order.name)

    def disarm(self) -> None:
        """Take back what nobody has obeyed."""
        for order in (self.folder / "armed").iterdir():
            order.unlink(missing_ok=True)

    def obeyed(self, fault: Fault) -> int | None:
        """The process that has obeyed, told once; None while nobody has."""
        for order in (self.folder / "obeyed").glob(f"{fault.service}.{fault.point}.*"):
            order.unlink()
            return int(order.name.rpartition(".")[2])
        return None


@dataclass
class Campaign:
    """Faults of one history under way: armed again until each was obeyed as often as it says.

    A thread of its own sees to it: where both replicas of the api are frozen, whoever asks it something waits in vain
    until they are woken.
    """

    orders: Orders
    faults: Sequence[Fault]
    done: list[Fault] = field(default_factory=list)
    """What happened: one entry for each process that was killed or frozen."""
    _left: list[Fault] = field(default_factory=list)
    _frozen: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        for fault in self.faults:
            self.orders.arm(fault)
        self._left = list(self.faults)
        threading.Thread(target=self._go_on, daemon=True).start()

    def step(self) -> None:
        """Look what was obeyed, arm what follows at once, wake what has slept long enough."""
        with self._lock:
            self._look()
            for pid, until in list(self._frozen.items()):
                if time.monotonic() >= until:
                    self._wake(pid)

    def give_up(self) -> None:
        """Wait for nobody any more."""
        with self._lock:
            self.orders.disarm()
            self._look(following=False)
            self._left = []

    @property
    def waits_for(self) -> list[Fault]:
        """What nobody has obeyed yet."""
        return list(self._left)

    @property
    def over(self) -> bool:
        with self._lock:
            return not self._left and not self._frozen

    def end(self) -> None:
        """Leave nothing armed and nobody frozen."""
        self._ended.set()
        self.give_up()
        with self._lock:
            for pid in list(self._frozen):
                self._wake(pid)

    def _go_on(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.step()

    def _look(self, *, following: bool = True) -> None:
        for fault in list(self._left):
            pid = self.orders.obeyed(fault)
            if pid is None:
                continue
            self._left.remove(fault)
            self.done.append(replace(fault, times=1))
            if fault.word == "stop":
                self._frozen[pid] = time.monotonic() + fault.seconds
            if fault.times > 1 and following:
                again = replace(fault, times=fault.times - 1, nth=1)
                self.orders.arm(again)
                self._left.append(again)

    def _wake(self, pid: int) -> None:
        del self._frozen[pid]
        deadline = time.monotonic() + _ASLEEP_SECONDS
        while _state(pid) not in ("T", None) and time.monotonic() < deadline:
            time.sleep(0.001)  # it has moved its order, and is about to freeze itself
        with suppress(ProcessLookupError):  # killed while it slept
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str | None:
    """The letter that stat(5) of proc has for it; None where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
