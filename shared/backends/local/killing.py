"""Ending everything below a process, however fast it forks.

Processes that fork and exit in a chain are gone before a list of all processes is read. Who is below a process is told
by /proc/PID/task/TID/children within microseconds. A process that was sent SIGKILL forks no more (fork fails while a
fatal signal is pending), so its children, read after that, are all it will ever have. One that exits in between leaves
its children to the subreaper above it, where the next look finds them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Iterator
from functools import cache

from shared.backends.local import processes

# So long nobody else needs the processor as much; then everybody else has it for a while.
_BURST_SECONDS = 0.2
_REST_SECONDS = 0.02
# After so many looks without anybody new, those that were killed only need the time to end.
_QUIET_LOOKS = 20
_LONGEST_PAUSE_SECONDS = 0.1


def kill_below(pid: int, *, apart_from: Container[int] = ()) -> set[int]:
    """SIGKILL to everything below `pid`, from above to below, but not to `apart_from` and what is below those.

    Returns whom it has found, those included that have ended and that nobody has waited for.
    """
    if not _are_children_told():
        known = processes.descendants(pid, apart_from=apart_from)
        processes.kill_all(known, os.getpgrp())
        return set(known)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            if child in found or child in apart_from:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            found.add(child)
            waiting.append(child)
    return found


def end_children(reap: Callable[[], None]) -> None:
    """Returns when this process, a subreaper, has no child left. `reap` waits for those that have ended."""
    pause = 0.0005
    while True:
        reap()
        if not _has_child():
            return
        if kill_burst(reap):
            signal.sigtimedwait({signal.SIGCHLD}, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        else:
            time.sleep(_REST_SECONDS)


def kill_burst(reap: Callable[[], None], *, apart_from: Container[int] = ()) -> bool:
    """Kill everything below this process, before all others, for as long as new ones appear; False when they still do
    at the end of a burst."""
    until = time.monotonic() + _BURST_SECONDS
    known: set[int] = set()
    quiet = 0
    with _before_all_others():
        while quiet < _QUIET_LOOKS:
            found = kill_below(os.getpid(), apart_from=apart_from)
            reap()
            if not found:
                return True
            quiet = quiet + 1 if found <= known else 0
            known = found
            if time.monotonic() > until:
                return False
    return True


@contextlib.contextmanager
def _before_all_others() -> Iterator[None]:
    """Ahead of all that runs as usual, where that is permitted."""
    policy, parameters, nice = os.sched_getscheduler(0), os.sched_getparam(0), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
        os.setpriority(os.PRIO_PROCESS, 0, nice)


@cache
def _are_children_told() -> bool:
    """Is the kernel built with CONFIG_PROC_CHILDREN?"""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    except (FileNotFoundError, ProcessLookupError):  # it has ended: its children are those of who is above it
        pass
    return found


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(fd, 1 << 16):
            content += part
        return content
    finally:
        os.close(fd)


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
