"""The end of staging in: folders get their modes and times once nothing more is written into them."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from services.stager.listing import Tree
from services.stager.tar import Kind

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Look:
    """How a folder is to be. Of the mode setuid, setgid and sticky bits do not count."""

    mode: int
    modified_ns: int


def submitted(tree: Tree, modified_ns: int) -> dict[str, Look]:
    """How the folders of a snapshot are."""
    folders = ((path, member) for path, member in tree.members.items() if member.kind is Kind.FOLDER)
    return {path: Look(member.mode, modified_ns) for path, member in folders}


def close(folders: Mapping[str, Look], into: int, go_on: Callable[[], None]) -> None:
    """Make these folders below the directory `into` (a descriptor) look so; what is none there is passed over. Nothing
    follows a link."""
    for path in sorted(folders, reverse=True):  # what is inside first: afterwards its folder may be closed to us
        go_on()
        with suppress(FileNotFoundError, NotADirectoryError):
            fd = _opened(path, into)
            try:
                look = folders[path]
                os.utime(fd, ns=(look.modified_ns, look.modified_ns))
                os.fchmod(fd, look.mode & 0o777)
            finally:
                os.close(fd)


def _opened(path: str, into: int) -> int:
    fd = os.dup(into)
    for part in path.split("/"):
        try:
            inner = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd
