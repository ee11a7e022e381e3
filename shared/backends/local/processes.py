"""Who is alive: processes named so that pid reuse and a reboot cannot be taken for a live job."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Container, Iterator
from functools import cache


def read_small(path: str) -> bytes:
    """A short file of /proc in one read: a file object would cost a fresh supervisor 100 page faults."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


@cache
def boot_id() -> str:
    """Changes at every boot of the kernel, which no process outlives."""
    return read_small("/proc/sys/kernel/random/boot_id").decode().strip()


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state first), or None when there is no such process."""
    try:
        content = read_small(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the name, may hold blanks and parentheses: only the last one closes it.
    return content[content.rindex(b")") + 2 :].decode().split()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it has ended (a zombie has)."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def identity(pid: int) -> dict[str, object]:
    """What is recorded of a process, so that `is_alive` can tell later whether it is still this one."""
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot_id": boot_id()}


def is_alive(who: object, this_boot: str) -> bool:
    """Is the recorded process still there? False after a reboot, or when another process has got its pid since."""
    if not isinstance(who, dict):
        return False
    pid, ticks = who.get("pid"), who.get("start_ticks")
    if type(pid) is not int or type(ticks) is not int or who.get("boot_id") != this_boot:
        return False
    return pid > 0 and start_ticks(pid) == ticks


def signal_process(who: object, signal_number: int) -> bool:
    """Signal the recorded process and never one that reuses its pid. False when it has ended."""
    if not isinstance(who, dict) or type(who.get("pid")) is not int or who["pid"] <= 0:
        return False
    try:
        pidfd = os.pidfd_open(who["pid"])
    except ProcessLookupError:
        return False
    try:
        if not is_alive(who, boot_id()):
            return False
        signal.pidfd_send_signal(pidfd, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def all_pids() -> Iterator[int]:
    """Every process that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def descendants(of: int, *, apart_from: Container[int] = ()) -> dict[int, int]:
    """{pid: process group} of every live process below `of`, but not of `apart_from` and what is below those."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for pid in all_pids():
        fields = stat_fields(pid)
        if fields is not None and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(pid)
            groups[pid] = int(fields[2])
    found: dict[int, int] = {}
    waiting = [of]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found and child not in apart_from:
                found[child] = groups[child]
                waiting.append(child)
    return found


def signal_all(pids_with_groups: dict[int, int], leader: int, signal_number: int) -> None:
    """Signal the group of `leader` as one, and each process outside it on its own: nobody gets it twice."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal_number)
    for pid, group in pids_with_groups.items():
        if group != leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal_number)


def kill_all(pids_with_groups: dict[int, int], own_group: int) -> None:
    """SIGKILL all of them: group by group first, as that is atomic against forks inside a group."""
    for group in set(pids_with_groups.values()) - {own_group, 0, 1}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for pid in pids_with_groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
