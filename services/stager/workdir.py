"""The directories of an attempt on the local cluster, and the staging fence in the file system.

Every lease writes into a directory of its own, `e<lease epoch>.part`, renamed to `e<lease epoch>` when it is whole; the
row names the one that counts. An attempt whose directory holds a claim has run: nothing in it is ever cleared.
"""

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from shared.backends.local import layout

_EPOCH: Final = re.compile(r"e(\d+)(\.part)?")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Taken(Exception):
    """The directory of this lease epoch is there already and may not be cleared: take the next epoch."""


def relative(root: str, tenant: str, job: str, attempt: int, lease_epoch: int) -> str:
    """The published directory as facts name it: relative to the cluster's root."""
    return os.path.relpath(f"{layout.attempt_directory(root, tenant, job, attempt)}/e{lease_epoch}", root)


def make_plain(root: str, tenant: str, job: str, attempt: int, lease_epoch: int) -> bool:
    """Make an empty working directory; False where there is one that is not empty, or a claim. Safe to repeat."""
    here = make_attempt(root, tenant, job, attempt)
    directory = f"{here}/e{lease_epoch}"
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return not _claimed(here) and not os.listdir(directory)
    return True


@contextmanager
def making(root: str, tenant: str, job: str, attempt: int, lease_epoch: int) -> Iterator[int]:
    """The new, empty directory to stage into, as a descriptor. It gets its final name when the block ends well, and is
    removed when the block raises. Raises Taken where that name is in use."""
    here = make_attempt(root, tenant, job, attempt)
    sweep(root, tenant, job, attempt, lease_epoch)
    directory = f"{here}/e{lease_epoch}"
    part = f"{directory}.part"
    if os.path.lexists(directory) or os.path.lexists(part):
        raise Taken(directory)
    os.mkdir(part, 0o700)
    try:
        fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield fd
            sync(fd)
        finally:
            os.close(fd)
        os.rename(part, directory)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def sweep(root: str, tenant: str, job: str, attempt: int, below: int) -> None:
    """Remove what leases before the epoch `below` left in the attempt's directory, unless a claim is in it."""
    here = layout.attempt_directory(root, tenant, job, attempt)
    for name in os.listdir(here):
        left = _EPOCH.fullmatch(name)
        if left is not None and int(left[1]) < below and not _claimed(here):
            shutil.rmtree(f"{here}/{name}", ignore_errors=True)


def sync(fd: int) -> None:
    """Have everything that was written to this file system survive a power cut: syncfs(2)."""
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_full(error: OSError) -> bool:
    """Whether a write failed for want of room, which may pass."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _claimed(attempt_directory: str) -> bool:
    return any(name == "claim" or name.startswith("claim.") for name in os.listdir(attempt_directory))


def make_attempt(root: str, tenant: str, job: str, attempt: int) -> str:
    """The attempt's directory. The backend gives its parents their final owners and modes at the launch."""
    path = layout.attempt_directory(root, tenant, job, attempt)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return path
    except FileNotFoundError:
        for parent in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path), path):
            with suppress(FileExistsError):
                os.mkdir(parent, 0o700)
    return path
