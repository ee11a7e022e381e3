"""Writes a snapshot that was found safe into a new directory that nobody else writes to."""

import os
from collections.abc import Callable
from typing import IO, Final

from services.stager.listing import Tree, clean_path, read_entries
from services.stager.tar import Entry, Kind, TarReader

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20


def unpack(archive: IO[bytes], tree: Tree, modified_ns: int, into: int, go_on: Callable[[], None]) -> None:
    """Write everything below the directory `into` (a descriptor), which must be empty, each file as modified then.

    Links are made last: while files are written there is none that a path could lead through. Execute bits are kept;
    setuid, setgid and sticky bits are not. Folders stay open to us until they are closed (`folders.close`). `go_on` is
    called often, and may raise to end the work.
    """
    folders: set[str] = set()
    for entry, reader in read_entries(archive):
        go_on()
        path = clean_path(entry.path)
        assert path is not None, "the listing refused it"
        if entry.kind is Kind.FOLDER:
            _make_folders(path, into, folders)
        elif entry.kind in (Kind.FILE, Kind.HARD_LINK):
            _make_folders(os.path.dirname(path), into, folders)
            _write(path, entry, reader, modified_ns, into, go_on)
        else:
            _make_folders(os.path.dirname(path), into, folders)
    for path, member in tree.members.items():
        if member.kind is Kind.LINK:
            os.symlink(member.target, path, dir_fd=into)


def _make_folders(path: str, into: int, made: set[str]) -> None:
    if path == "" or path in made:
        return
    _make_folders(os.path.dirname(path), into, made)
    os.mkdir(path, 0o700, dir_fd=into)
    made.add(path)


def _write(path: str, entry: Entry, reader: TarReader, modified_ns: int, into: int, go_on: Callable[[], None]) -> None:
    fd = os.open(path, _CREATE, 0o600, dir_fd=into)
    with open(fd, "wb", buffering=0) as file:
        mode = entry.mode
        if entry.kind is Kind.FILE:
            for data in reader.content():
                go_on()
                file.write(data)
        else:
            source = clean_path(entry.target)
            assert source is not None, "the listing refused it"
            original = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=into)
            with open(original, "rb", buffering=0) as content:
                while data := content.read(_CHUNK):
                    go_on()
                    file.write(data)
                mode = os.fstat(original).st_mode
        os.fchmod(fd, mode & 0o777)
        os.utime(fd, ns=(modified_ns, modified_ns))
