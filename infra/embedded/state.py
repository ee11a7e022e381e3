"""What is known of a stack from outside: `run/state.json`, written whole at every change, and the lock of its home."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from infra.embedded.home import Home, write_json
from infra.embedded.processes import Identity
from shared.backends.local import locks

Word = Literal["starting", "running", "restarting", "stopped"]


class AlreadyRunningError(Exception):
    """Another supervisor holds the home."""


@dataclass(frozen=True)
class Entry:
    """One process of the stack, as last seen by the supervisor."""

    name: str
    identity: Identity | None
    state: Word
    restarts: int
    started_at: str | None
    log: str
    ready: str | None = None
    """What to ask whether it is ready; None where being there is enough."""
    outlives: bool = False
    stop_signal: int = signal.SIGTERM
    stop_seconds: float = 15

    def now(self) -> Self:
        """The same, true at this moment: what has died since it was written is stopped."""
        if self.identity is None or self.identity.alive():
            return self
        return replace(self, identity=None, state="stopped", started_at=None)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"identity": self.identity.to_json() if self.identity else None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        identity = Identity.from_json(value["identity"]) if value["identity"] else None
        return cls(**(value | {"identity": identity}))


@dataclass(frozen=True)
class State:
    """A stack: its supervisor, whether it got ready, what stopped it, its processes in the order of their start."""

    supervisor: Identity
    ready: bool = False
    problem: str | None = None
    processes: tuple[Entry, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    servers_ready: bool = False
    """Whether everything is there that the stack cannot stand without: from then on it goes on trying."""
    many_tenants: bool = False
    """Whether it lets more than one tenant in."""
    replicas: dict[str, int] = field(default_factory=dict)
    """How many processes each service has, where it is not one."""
    clusters: str | None = None
    """The file that names its Slurm clusters."""
    remark: str | None = None
    """What a person should know of how it started."""

    def write(self, home: Home) -> None:
        write_json(
            _path(home),
            vars(self)
            | {"supervisor": self.supervisor.to_json(), "processes": [entry.to_json() for entry in self.processes]},
        )

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """None where no stack was ever started in this home, or the machine lost the file in a crash."""
        try:
            value = json.loads(_path(home).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        supervisor = Identity.from_json(value["supervisor"])
        processes = tuple(Entry.from_json(entry) for entry in value["processes"])
        return cls(**(value | {"supervisor": supervisor, "processes": processes}))


def _lock(home: Home, name: str = "lock") -> Path:
    return home.run / name


def _path(home: Home) -> Path:
    return home.run / "state.json"


def is_running(home: Home) -> bool:
    """Whether a supervisor holds this home."""
    return locks.is_held(str(_lock(home)))


@contextmanager
def hold(home: Home, name: str = "lock") -> Iterator[None]:
    """Hold the home (or what else has a lock in it) while the block runs; the kernel lets go with the process."""
    descriptor = os.open(_lock(home, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not locks.take(descriptor):
            raise AlreadyRunningError(f"a stack is already running in {home.root}")
        yield
    finally:
        os.close(descriptor)
