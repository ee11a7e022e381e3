"""The Linux calls that Python 3.11 does not wrap: prctl, unshare and mount. Each raises OSError as `os` would."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Collection

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_CLOSE_RANGE = 436  # its number on every architecture
_LAST_DESCRIPTOR = 0xFFFFFFFF

CLONE_NEWNS = 0x00020000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def become_subreaper() -> None:
    """From now on every orphan below this process becomes its child, not init's."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent(signal_number: int) -> None:
    """Ask for `signal_number` when the parent dies. A change of uid clears it, so call this after setuid."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_new_privileges() -> None:
    """No later exec gains privileges: set-user-ID programs run without their owner's rights."""
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def close_descriptors(*kept: int) -> None:
    """Close every descriptor from 3 on but those. One call for each gap, however high the limit of open files is."""
    first = 3
    for fd in (*sorted(fd for fd in set(kept) if fd >= first), _LAST_DESCRIPTOR + 1):
        if fd > first and _libc.syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(fd - 1), 0) != 0:
            _close_listed(kept)  # Linux before 5.9
            return
        first = fd + 1


def _close_listed(kept: Collection[int]) -> None:
    """By list: up to the limit of open files it would take minutes where that limit is a billion."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(fd)


def name_process(name: str) -> None:
    """What `ps -o comm` shows, cut to 15 bytes by the kernel."""
    _checked(_libc.prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0), "prctl(PR_SET_NAME)")


def unshare_mounts() -> None:
    """Give this process mounts of its own: what it mounts stays its own, what others mount later still arrives."""
    _checked(_libc.unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    mount("none", "/", None, MS_REC | MS_SLAVE)


def enter_mounts(namespace_fd: int) -> None:
    """Go back to the mounts behind an open /proc/PID/ns/mnt."""
    _checked(_libc.setns(namespace_fd, CLONE_NEWNS), "setns(CLONE_NEWNS)")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind is not None else None,
            ctypes.c_ulong(flags),
            data.encode() if data is not None else None,
        ),
        f"mount {source} at {target}",
    )
