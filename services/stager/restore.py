"""Puts the outputs of an earlier attempt into a new working directory, over what was submitted.

So a retried job finds its checkpoints where it left them. Nothing follows a link: what stands in an output's way (the
snapshot may hold a link or file where the job made a folder) gives way to it. What the job had removed goes again.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from services.stager.blobs import Blobs, Corrupt, GoOn
from services.stager.listing import clean_path
from shared.contracts.queries import Manifest, OutputFile, OutputLink
from shared.contracts.snapshot import shown

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(blobs: Blobs, manifest: Manifest, unknown_ns: int, into: int, go_on: GoOn) -> None:
    """Write the files of a manifest below the directory `into` (a descriptor) that nobody else writes to, each with its
    mode and time, which is `unknown_ns` where nobody knows it; folders stay open to us (see `folders.close`). Raises
    StoreError where the store does not give them, or gives other content."""
    files = {entry.path: entry for entry in manifest.files}
    for entry in manifest.files:
        go_on()
        parts = (clean_path(entry.path) or "").split("/")
        if parts == [""]:
            raise Corrupt(f"a manifest names {shown(entry.path)}, which is no path of an output")
        if entry.kind == "directory":
            with _folder(into, parts):
                continue
        with _folder(into, parts[:-1]) as parent:
            first = files.get(entry.hard_link_of or "")
            if first is not None and _linked(first, entry, parts[-1], parent, into):
                continue
            _write(blobs, manifest.prefix, entry, unknown_ns, parts[-1], parent, go_on)


def make_links(links: Iterable[OutputLink], into: int) -> None:
    """Make links below the directory `into`. Last: while files are written there is none that a path leads through."""
    for entry in links:
        *folders, name = entry.path.split("/")
        with _folder(into, folders) as parent:
            _give_way(name, parent)
            os.symlink(entry.target, name, dir_fd=parent)


def remove(paths: Iterable[str], into: int) -> None:
    """Remove files and links below the directory `into`, and folders that are empty then."""
    for path in sorted(paths, reverse=True):
        with suppress(FileNotFoundError, NotADirectoryError):  # something that it lay in is no folder any more
            if stat.S_ISDIR(os.lstat(path, dir_fd=into).st_mode):
                _remove_if_empty(path, into)
            else:
                os.unlink(path, dir_fd=into)


def _remove_if_empty(path: str, into: int) -> None:
    try:
        os.rmdir(path, dir_fd=into)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def _linked(first: OutputFile, entry: OutputFile, name: str, parent: int, into: int) -> bool:
    """Whether it could be made another name of the file that lies here already, which has to be the same."""
    if (first.size_bytes, first.sha256) != (entry.size_bytes, entry.sha256):
        return False
    *folders, other = first.path.split("/")
    _give_way(name, parent)
    with _folder(into, folders) as source, suppress(OSError):  # a file has so many names at most
        os.link(other, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        return True
    return False


def _write(blobs: Blobs, prefix: str, entry: OutputFile, unknown_ns: int, name: str, parent: int, go_on: GoOn) -> None:
    _give_way(name, parent)
    with open(os.open(name, _CREATE, 0o600, dir_fd=parent), "wb", buffering=0) as file:
        blobs.fetch(prefix + entry.key, file, entry.size_bytes, entry.sha256, go_on)
        os.fchmod(file.fileno(), entry.mode & 0o777)
        modified_ns = unknown_ns if entry.modified_ns is None else entry.modified_ns
        os.utime(file.fileno(), ns=(modified_ns, modified_ns))


@contextmanager
def _folder(into: int, parts: list[str]) -> Iterator[int]:
    """The folder at a path, made where it is not there."""
    fd = os.dup(into)
    try:
        for part in parts:
            inner = _enter(part, fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _enter(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:  # a file, or a link: O_DIRECTORY is judged first
        os.unlink(name, dir_fd=parent)
    os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _give_way(name: str, parent: int) -> None:
    """Remove what has an output's name: a link, a file, or a folder with what is in it."""
    try:
        status = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
