"""Removes directories that were staged or that a job ran in, whatever is left there, in pieces and again after a kill.

Everything is moved into one folder first, through which nobody else passes, and a folder in there is moved up before it
is emptied: so no depth matters, no link is followed, and what is left after a kill is found again.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

_GONE: Final = "deleted"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Enough(Exception):
    """As much was removed as was wanted at once."""


class _Removal:
    """Removes up to `limit` entries."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def empty(self, directory: str, keeps: Callable[[str], bool]) -> None:
        """Remove what is in a directory but for the names that are kept, and the directory where none is."""
        gone = f"{directory}/{_GONE}"
        with suppress(FileExistsError):
            os.mkdir(gone, 0o700)
        with _opened(directory) as top, _opened(gone) as into:
            for name in os.listdir(top):
                if name != _GONE and not keeps(name):
                    _move(name, top, into)
            while names := os.listdir(into):
                for name in names:
                    self._remove(name, into)
            os.rmdir(_GONE, dir_fd=top)
        _remove_if_empty(directory)

    def _remove(self, name: str, gone: int) -> None:
        if _is_folder(name, gone):
            _open_up(name, gone)
            with _opened(name, gone) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._spend()
                        _move(entry.name, folder, gone)
                    else:
                        self._unlink(entry.name, folder)
            with suppress(OSError):  # what was read while it was changed is read once more
                os.rmdir(name, dir_fd=gone)
        else:
            self._unlink(name, gone)

    def _unlink(self, name: str, folder: int) -> None:
        self._spend()
        os.unlink(name, dir_fd=folder)

    def _spend(self) -> None:
        if self._left <= 0:
            raise _Enough
        self._left -= 1


def is_fence(name: str) -> bool:
    """Whether a file of an attempt's directory keeps its command from being run again."""
    return name in ("claim", "revoked") or name.startswith("claim.")


def remove_attempts(job_directory: str, keeps: Callable[[str], bool], limit: int) -> bool:
    """Remove the attempts of a job, but for the names in their directories that are kept: at most some `limit` entries,
    and whether that was all. Raises OSError where something cannot be removed; safe to repeat."""
    removal = _Removal(limit)
    try:
        for name in os.listdir(job_directory):
            removal.empty(f"{job_directory}/{name}", keeps)
    except _Enough:
        return False
    except FileNotFoundError:  # there is none, or another was faster: whoever looks next finds what is left
        return not os.path.lexists(job_directory)
    _remove_if_empty(job_directory)
    return True


def remove_folder(directory: str) -> None:
    """Remove a folder with all that is in it. Raises OSError where something cannot be removed; safe to repeat."""
    _Removal(sys.maxsize).empty(directory, lambda name: False)


@contextmanager
def _opened(path: str, within: int | None = None) -> Iterator[int]:
    fd = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_folder(name: str, within: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=within).st_mode)


def _open_up(name: str, within: int) -> None:
    """Let its owner, which may be this user, remove what the job had closed."""
    os.chmod(name, 0o700, dir_fd=within)


def _move(name: str, folder: int, gone: int) -> None:
    """To a name of its own in there. A folder that is moved is written to: its `..` changes."""
    if _is_folder(name, folder):
        _open_up(name, folder)
    os.rename(name, uuid4().hex, src_dir_fd=folder, dst_dir_fd=gone)


def _remove_if_empty(directory: str) -> None:
    with suppress(OSError):
        os.rmdir(directory)
