"""The directories of an attempt on the local cluster, and the staging fence in the file system.

Every lease writes into a directory of its own, `<mark>.part`, renamed to `<mark>` when it is whole; the row names the
one that counts. An attempt whose directory holds a claim has run: nothing is staged into it any more, and no directory
in which its command may have run is ever cleared.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from services.stager.marks import Mark
from services.stager.removal import remove_folder
from shared.backends.local import layout
from shared.backends.local.files import read_record
from shared.backends.local.released import read_any
from shared.runtime import failpoints

_PART: Final = ".part"
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Taken(Exception):
    """The directory of this lease is there already and may not be cleared: take the next epoch."""


class Claimed(Exception):
    """The attempt has run: nothing may be staged for it any more. `directory` (relative to the cluster's root) is where
    its command ran, None where nobody knows it."""

    def __init__(self, directory: str | None) -> None:
        super().__init__(directory)
        self.directory = directory


def relative(root: str, tenant: str, job: str, attempt: int, mark: Mark) -> str:
    """The published directory as facts name it: relative to the cluster's root."""
    return os.path.relpath(f"{layout.attempt_directory(root, tenant, job, attempt)}/{mark}", root)


def make_plain(root: str, tenant: str, job: str, attempt: int, mark: Mark) -> bool:
    """Make an empty working directory; False where there is one that is not empty, or a claim. Safe to repeat. What the
    lost time staged goes, as in `making`."""
    here = make_attempt(root, tenant, job, attempt)
    if not _claimed(here):
        directory = f"{here}/{mark}"
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            if os.listdir(directory):
                return False
        if mark.epoch > 1:
            _sweep(here, mark)
    if not _claimed(here):
        return True
    # The command may begin at any moment, after a restore in a directory of the lost time: then nobody wants this one.
    if directory_of_the_run(root, tenant, job, attempt) not in (None, relative(root, tenant, job, attempt, mark)):
        remove_plain(root, tenant, job, attempt, mark)
    return False


def remove_plain(root: str, tenant: str, job: str, attempt: int, mark: Mark) -> None:
    """Remove an empty working directory that nobody will use."""
    with suppress(OSError):  # it is not there, or not empty: then it is not one of `make_plain`
        os.rmdir(f"{layout.attempt_directory(root, tenant, job, attempt)}/{mark}")


def directory_of_the_run(root: str, tenant: str, job: str, attempt: int) -> str | None:
    """Where the command of an attempt runs or ran (relative to the root), as the intent of the submission says that
    has the claim, whether it is released or not; None where there is none, or nobody knows."""
    here = layout.attempt_directory(root, tenant, job, attempt)
    claim = read_record(f"{here}/{layout.CLAIM}") or {}
    intent = read_any(root, f"{claim.get('submission')}", layout.SPEC) or {}
    directory = intent.get("directory")
    if not isinstance(directory, str) or Mark.read(directory) is None:
        return None
    return os.path.relpath(f"{here}/{directory}", root)


@contextmanager
def making(root: str, tenant: str, job: str, attempt: int, mark: Mark) -> Iterator[int]:
    """The new, empty directory to stage into, as a descriptor. It gets its final name when the block ends well, and is
    removed when the block raises. Raises Taken where that name is in use, Claimed where the attempt has run."""
    here = make_attempt(root, tenant, job, attempt)
    if _claimed(here):
        raise Claimed(directory_of_the_run(root, tenant, job, attempt))
    _sweep(here, mark)
    directory = f"{here}/{mark}"
    part = f"{directory}{_PART}"
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
        failpoints.reach("rename.before")
        os.rename(part, directory)
        failpoints.reach("rename.after")
    except BaseException:
        with suppress(OSError):  # what is left is swept
            _remove(part)
        raise


def discard(
    root: str, tenant: str, job: str, attempt: int, mark: Mark, published: str | None, *, lost_time: bool
) -> None:
    """Remove what a lease left of which nothing more will be written. `published` is the directory that the row names.

    Under a claim only what cannot be the command's own directory is removed: what never got its final name, and where
    another directory is published, or is known to be the run's where a restore made the row forget (`lost_time`).
    """
    here = layout.attempt_directory(root, tenant, job, attempt)
    _remove(f"{here}/{mark}{_PART}")
    directory = relative(root, tenant, job, attempt, mark)
    if directory == published:
        return
    unsure = (published is None or lost_time) and os.path.isdir(here) and _claimed(here)
    if unsure and directory_of_the_run(root, tenant, job, attempt) in (None, directory):
        return
    _remove(f"{here}/{mark}")


def _sweep(here: str, below: Mark) -> None:
    """Remove what leases before `below` left in the attempt's directory, unless a claim is in it."""
    for name in os.listdir(here):
        mark = Mark.read(name.removesuffix(_PART))
        if mark is not None and mark < below and not _claimed(here):
            with suppress(OSError):
                _remove(f"{here}/{name}")


def _remove(directory: str) -> None:
    """Whatever modes its folders have. Raises OSError where something is left."""
    with suppress(FileNotFoundError):  # it is not there, or another removes it, too
        remove_folder(directory)
    if os.path.lexists(directory):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), directory)


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
