"""Locks that the kernel drops when the last process holding them ends: proof of death without a pid.

An open-file-description lock is inherited by fork, so a supervisor holds the lock on its spec from before it exists
until it is gone; and unlike flock(2), whether it is held can be asked without taking it. fcntl_locking(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = "hhqqi4x"
_WHOLE_FILE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def take(fd: int) -> bool:
    """Take the lock if nobody holds it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def take_waiting(fd: int) -> None:
    """Take the lock, waiting for whoever holds it."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, _WHOLE_FILE)


def is_held(path: str) -> bool:
    """Does some process hold the lock on this file? False for a file that is not there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        (kind,) = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE))
    finally:
        os.close(fd)
    return bool(kind != fcntl.F_UNLCK)
