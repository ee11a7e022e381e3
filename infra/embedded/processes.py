"""Processes as data, how they are started, and how one is told apart from a stranger that got the same pid."""

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and exec


@dataclass(frozen=True)
class Account:
    """The unprivileged user that a process runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Process:
    """One process of a stack: what to run, where its output goes, when it is ready, and how it is asked to end."""

    name: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    ready: str | None = None
    """What `probes.why_not_ready` asks; None where being started is enough."""
    account: Account | None = None
    """None runs it as whoever starts it."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 15
    descriptors: tuple[int, ...] = ()
    """Open files of the starter that it gets, under the same numbers."""
    outlives: bool = False
    """True for what goes on when the stack's supervisor ends."""


@dataclass(frozen=True)
class Identity:
    """A process, and no other: its pid, when it started (in the kernel's ticks since boot), and which boot that was."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Who has this pid now; None where nobody does, or only a zombie."""
        ticks = _start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, boot_id())

    @classmethod
    def of_child(cls, child: subprocess.Popen[bytes]) -> Self:
        """Of a child that was not waited for yet, so that even a dead one still has its pid."""
        return cls(child.pid, _start_ticks(child.pid, dead_too=True) or 0, boot_id())

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(int(value["pid"]), int(value["start_ticks"]), str(value["boot_id"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def alive(self) -> bool:
        """Whether that very process still runs."""
        return self.boot_id == boot_id() and _start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> bool:
        """Signal that very process; False where it has gone. Handle first, then check: no pid reuse fits between."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def end(self, number: signal.Signals, seconds: float) -> bool:
        """Ask it to end, wait, then kill it. True where it ended by itself in time; it is gone in any case."""
        if not self.send(number) or self.gone_within(seconds):
            return True
        self.send(signal.SIGKILL)
        self.gone_within(10)
        return False

    async def gone(self) -> None:
        """Wait for its end, child or not: a pid's handle becomes readable then (pidfd_open(2))."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, over.set)
        try:
            if self.alive():
                await over.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def started_at(self) -> str:
        """When it started, by the machine's clock."""
        booted = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line[:5] == "btime"
        )
        moment = datetime.fromtimestamp(booted + self.start_ticks / os.sysconf("SC_CLK_TCK"), UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def gone_within(self, seconds: float) -> bool:
        """Wait for its end."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def boot_id() -> str:
    """The kernel's name for this boot: after a crash of the machine no recorded pid means anything."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_ticks(pid: int, *, dead_too: bool = False) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the name, in parentheses, may hold any character; after it state is the first field, starttime the 20th.
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if dead_too or fields[0] not in "ZX" else None


def tied_to_parent(process: Process) -> Callable[[], None] | None:
    """What the child runs before exec, so that it is asked to end when its starter dies, however that happens."""
    if process.outlives:
        return None
    parent, number = os.getpid(), int(process.stop_signal)

    def tie() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def popen_arguments(process: Process) -> dict[str, Any]:
    """How `process` is started, but for its log: no input, a session of its own (a Ctrl-C is the supervisor's)."""
    arguments: dict[str, Any] = {
        "cwd": process.cwd,
        "env": dict(process.environment),
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,
        "preexec_fn": tied_to_parent(process),
        "pass_fds": process.descriptors,
    }
    if process.account:
        arguments |= {"user": process.account.uid, "group": process.account.gid, "extra_groups": []}
    return arguments


def start(process: Process) -> subprocess.Popen[bytes]:
    """Start it and leave it to the caller. Must be called from the main thread: the tie is to the starting thread."""
    with open_log(process.log) as log:
        return subprocess.Popen(process.command, stdout=log, stderr=log, **popen_arguments(process))


def open_log(path: Path) -> Any:
    """The log, for appending: writers in append mode go on at the new end when it is cut back."""
    return open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab", buffering=0)
