"""Packs a directory into a snapshot: the same tree always gives the same bytes, and so the same digest.

Reproducible: entries sorted by the bytes of their names, no times, no owners, a fixed gzip header. (Another version of
zlib may compress otherwise: then the same tree is uploaded once more, nothing else.) Times would make another digest of
each checkout: in the job's directory everything has the time of its submission (see the stager's README).
"""

import errno
import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Final, Self, cast

from shared.client.snapshot_ignore import Ignores
from shared.contracts.snapshot import MAX_MEMBERS, LeadsOut, follow, shown, why_bad_name

_CHUNK: Final = 1 << 20
_IN_MEMORY_BYTES: Final = 8 << 20
_LEVEL: Final = 4  # about the size of the default level 6 in half its time
_BLOCK: Final = 512
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}

Progress = Callable[[int, int], object]
"""Called with the files and the bytes (before compression) that are packed so far."""


class SnapshotError(Exception):
    """The directory cannot be packed as it is; the text names the file, says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A packed directory. `file` stands at its beginning; closing the snapshot removes it."""

    file: BinaryIO
    digest: str
    """`sha256:` and the hexadecimal digest of the file's bytes."""
    size_bytes: int
    files: int
    """Regular files in it."""
    unpacked_bytes: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def pack(directory: str | Path, extra: Iterable[str] = (), progress: Progress | None = None) -> Snapshot:
    """Pack what is in `directory`, but `.git` and what `.gitignore` and `.tidegateignore` leave out.

    Paths in `extra` (declared inputs, relative to the directory) are packed even where they are ignored; one that does
    not exist is left to the check of the inputs. Raises SnapshotError, naming the file, for links that lead out, for
    sockets, pipes and devices, for what cannot be read, and for files that change meanwhile. Memory stays flat whatever
    the tree's size.
    """
    root = os.path.abspath(os.fspath(directory))
    if not os.path.isdir(root):
        raise SnapshotError(f"{shown(root)} is not a directory: give the directory that holds the job's files")
    spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, prefix="tidegate-snapshot-")  # noqa: SIM115 # handed on
    try:
        sink = _Hashing(spool)
        # An empty name and no time leave nothing in the header that differs from one run to the next.
        with gzip.GzipFile("", "wb", _LEVEL, sink, mtime=0) as compressed:
            packing = _Packing(root, compressed, progress)
            packing.run(Ignores(root, [kept for path in extra if (kept := _inside(path))]))
        spool.seek(0)
        return Snapshot(
            cast(BinaryIO, spool), f"sha256:{sink.digest.hexdigest()}", sink.size, packing.files, packing.bytes
        )
    except OSError as error:
        spool.close()
        if error.filename in (None, tempfile.gettempdir()):  # no file of the directory: there is no room to pack it
            raise
        raise _unreadable(os.path.relpath(error.filename, root), error) from error
    except BaseException:
        spool.close()
        raise


class _Hashing:
    """A file to write to that counts and hashes what passes."""

    def __init__(self, below: IO[bytes]) -> None:
        self._below = below
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._below.write(data)

    def flush(self) -> None:
        self._below.flush()


class _Packing:
    def __init__(self, root: str, out: gzip.GzipFile, progress: Progress | None) -> None:
        self._root = root
        self._out = out
        self._progress = progress
        self._members = 0
        self.files = 0
        self.bytes = 0

    def run(self, ignores: Ignores) -> None:
        for path, entry in _entries(self._root, "", ignores):
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise SnapshotError(
                    f"{shown(self._root)} holds more than {MAX_MEMBERS} files and folders: name what the job does not "
                    f"need in .tidegateignore, or pack many small files into one"
                )
            if why := why_bad_name(path):
                raise SnapshotError(f"{shown(path)} cannot be packed: {why}")
            self._add(path, entry)
        self._out.write(bytes(2 * _BLOCK))

    def _add(self, path: str, entry: os.DirEntry[str]) -> None:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._header(path, tarfile.SYMTYPE, 0o777, target=self._link(path))
        elif stat.S_ISDIR(status.st_mode):
            self._header(path, tarfile.DIRTYPE, status.st_mode & 0o777)
        elif stat.S_ISREG(status.st_mode):
            self._file(path)
        else:
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
            raise SnapshotError(f"{shown(path)} is {kind}, which cannot be packed: name it in .tidegateignore")

    def _link(self, path: str) -> str:
        try:
            follow(path, self._link_at)
        except LeadsOut as out:
            raise SnapshotError(
                f"the link {shown(path)} cannot be packed, because {out}: put a copy in its place, make it a relative "
                f"link to something inside, or name it in .tidegateignore"
            ) from None
        return os.readlink(f"{self._root}/{path}")

    def _link_at(self, path: str) -> str | None:
        try:
            return os.readlink(f"{self._root}/{path}")
        except OSError:  # no link, or nothing there
            return None

    def _file(self, path: str) -> None:
        # O_NONBLOCK: should a pipe have taken its place meanwhile, opening it must not wait for a writer.
        fd = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as source:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise _changed(path)
            self._header(path, tarfile.REGTYPE, before.st_mode & 0o777, size=before.st_size)
            left = before.st_size
            while left and (data := source.read(min(_CHUNK, left))):
                self._out.write(data)
                left -= len(data)
                self.bytes += len(data)
                self._tell()
            after = os.fstat(fd)
        if left or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise _changed(path)
        self._out.write(bytes(-before.st_size % _BLOCK))
        self.files += 1
        self._tell()

    def _header(self, path: str, kind: bytes, mode: int, *, size: int = 0, target: str = "") -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, size, target
        self._out.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.files, self.bytes)


def _entries(root: str, folder: str, ignores: Ignores) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything to pack below `folder`, a folder before what is in it, in the order of the names' bytes."""
    try:
        with os.scandir(f"{root}/{folder}") as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise _unreadable(folder or root, error) from error
    here = ignores.inside(folder)
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if here.leaves_out(path, is_folder=is_folder):
            continue
        yield path, entry
        if is_folder:
            yield from _entries(root, path, here)


def _inside(path: str) -> str:
    """A declared path in its shortest form; raises SnapshotError where it leads out."""
    if path.startswith("/"):
        raise SnapshotError(f"{shown(path)} is an absolute path: give a path relative to the submitted directory")
    try:
        return follow(path, lambda _: None)
    except LeadsOut:
        raise SnapshotError(f"{shown(path)} leads out of the submitted directory: give a path inside it") from None


def _unreadable(path: str, error: OSError) -> SnapshotError:
    if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):  # it was there when its folder was listed
        return _changed(path)
    return SnapshotError(
        f"{shown(path)} cannot be read: {error.strerror}. Make it readable for you, or name it in .tidegateignore"
    )


def _changed(path: str) -> SnapshotError:
    return SnapshotError(
        f"{shown(path)} changed while it was packed: wait until nothing writes to it, or name it in .tidegateignore"
    )
