"""What stagers have under way on a cluster, so that what a killed one left is found and removed.

A lease keeps a file `<root>/staging/<tenant>.<job>.a<attempt>.<mark>` locked (flock(2)) from before its first write.
The kernel unlocks it when the process ends, however it ends; so whoever gets another's lock knows that nobody writes
there any more. A frozen process keeps its lock, and clears up itself when it goes on.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from services.stager.marks import Mark

FOLDER: Final = "staging"


@dataclass(frozen=True, slots=True)
class Trace:
    """One lease of an attempt, as its file's name says."""

    tenant: str
    job: str
    attempt: int
    mark: Mark

    def __str__(self) -> str:
        return f"{self.tenant}.{self.job}.a{self.attempt}.{self.mark}"

    @classmethod
    def read(cls, name: str) -> Self | None:
        """The trace that a file's name tells; None for any other file."""
        tenant, _, rest = name.partition(".")
        job, _, rest = rest.partition(".")
        attempt, _, rest = rest.partition(".")
        mark = Mark.read(rest)
        if mark is None or not attempt.startswith("a") or not attempt[1:].isdigit():
            return None
        return cls(tenant, job, int(attempt[1:]), mark)


class Held:
    """The traces of one piece of work. `settled`: what they led to is published, so that they are wiped out at the end;
    else they stay, and whoever sweeps removes what they lead to."""

    def __init__(self, folder: str) -> None:
        self.settled = False
        self._folder = folder
        self._files: dict[Trace, int] = {}

    def add(self, trace: Trace) -> None:
        """Before the first write under this lease."""
        if trace in self._files:
            return
        while not self.take(trace, os.O_CREAT):
            pass  # a sweeper came between, took it for a dead one's and removed it

    def take(self, trace: Trace, flags: int = 0) -> bool:
        """Lock its file; raises BlockingIOError where somebody has the lock, FileNotFoundError where there is none."""
        path = f"{self._folder}/{trace}"
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(fd, path):
                self._files[trace] = fd
        finally:
            if trace not in self._files:
                os.close(fd)
        return trace in self._files

    def release(self) -> None:
        """The work has ended."""
        for trace, fd in self._files.items():
            if self.settled:
                with suppress(FileNotFoundError):  # somebody has cleared the folder by hand
                    os.unlink(f"{self._folder}/{trace}")
            os.close(fd)
        self._files.clear()


class Underway:
    """The traces on one cluster."""

    def __init__(self, root: str) -> None:
        self._folder = f"{root}/{FOLDER}"

    @contextmanager
    def work(self) -> Iterator[Held]:
        """The traces of a piece of work, released at its end."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        held = Held(self._folder)
        try:
            yield held
        finally:
            held.release()

    def left(self) -> list[Trace]:
        """Everything that was not settled, whether it is under way still or not."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted((trace for name in names if (trace := Trace.read(name)) is not None), key=str)

    @contextmanager
    def dead(self, trace: Trace) -> Iterator[Held | None]:
        """Its lock, where nobody works on it any more; None where somebody does."""
        held = Held(self._folder)
        taken = False
        with suppress(FileNotFoundError, BlockingIOError):
            taken = held.take(trace)
        try:
            yield held if taken else None
        finally:
            held.release()


def _is(fd: int, path: str) -> bool:
    """Whether the open file still has that name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
