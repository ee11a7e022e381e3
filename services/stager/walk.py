"""Reads the directory of a job that may be hostile: every step on a descriptor, no link followed by the kernel.

Links are resolved here, and only to what lies in the directory; the place they lead to is then opened without following
any, so that swapping something meanwhile gains nothing. Pipes, sockets and devices are never opened.
"""

import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from services.stager.manifest import as_text
from services.stager.patterns import Patterns
from shared.contracts.queries import OutputLink
from shared.contracts.snapshot import MAX_DEPTH, MAX_PATH_BYTES, LeadsOut, follow, shown

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_ENTRIES: Final = 5_000_000
_MOST_LINKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file that a pattern names. `path` is how the job named it, `real` where it lies once links are
    followed."""

    path: str
    real: str
    mode: int


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """A folder that a pattern names with nothing in it (`is_empty`), or one in which something was found: that comes
    after all of it."""

    path: str
    mode: int
    modified_ns: int
    is_empty: bool


class Loss(Enum):
    """What not bringing something back means."""

    NOTHING = "a pipe, a socket or a device: there is nothing in it to keep"
    OTHERS = "what it leads to, or is, does not belong to the job's directory"
    CONTENT = "the job has written it there, and it is not among what came back"


_TO_NOTHING: Final = ("it is a link to nothing", Loss.OTHERS)
_TO_ITS_OWN_FOLDER: Final = ("it is a link to a folder that it lies in", Loss.OTHERS)
# Links inside that can be links again: nothing is read through them.
_MAY_STAY: Final = (None, _TO_NOTHING, _TO_ITS_OWN_FOLDER)


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that a pattern names and that cannot come back."""

    path: str
    why: str
    loss: Loss
    is_kept: bool = False
    """It is among `Walk.links`, so that the next attempt has it."""


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str
    real: str
    states: frozenset[tuple[int, int]]
    whole: bool
    """A pattern names the folder: everything in it is wanted."""
    came_from: tuple[str, ...]
    """The real folders of the links that led here."""


@dataclass(frozen=True, slots=True)
class _Left:
    """On the stack below all that lies in a folder."""

    folder: FoundFolder
    found_before: int


class Walk:
    """One pass over a working directory. After it, `unmatched` are the patterns that named nothing, and `links` those
    links (not more than some thousands) whose content came back."""

    def __init__(self, directory: str, patterns: Patterns) -> None:
        self._root = os.open(directory, _FOLDER)
        self._prefixes = (f"{directory}/", f"{os.path.realpath(directory)}/")
        self._patterns = patterns
        self._matched: set[int] = set(patterns.whole())
        self._entries = 0
        self._found = 0
        self.links: list[OutputLink] = []
        self.owner = os.fstat(self._root).st_uid

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._root)

    @property
    def unmatched(self) -> tuple[str, ...]:
        return tuple(text for place, text in enumerate(self._patterns.texts) if place not in self._matched)

    def __iter__(self) -> Iterator[Found | FoundFolder | Refused]:
        folders: list[_Folder | _Left] = [_Folder("", "", self._patterns.start(), bool(self._patterns.whole()), ())]
        while folders:
            folder = folders.pop()
            if isinstance(folder, _Left):
                if self._found > folder.found_before:
                    yield folder.folder
                continue
            try:
                fd = self._open_folder(folder.real)
            except OSError as error:
                yield Refused(folder.path, f"it cannot be read: {error.strerror}", Loss.CONTENT)
                continue
            try:
                yield from self._read(folder, fd, folders)
            except OSError as error:
                yield Refused(folder.path, f"it cannot be read to its end: {error.strerror}", Loss.CONTENT)
            finally:
                os.close(fd)

    def open_file(self, found: Found) -> int:
        """The file's content, for reading; raises OSError where something else has taken its place."""
        folder, name = posixpath.split(found.real)
        parent = self._open_folder(folder)
        try:
            seen = os.open(name, _LOOK, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            if why := self._why_no_file(os.fstat(seen)):
                raise OSError(why[0])
            # Opened through the descriptor that was looked at: nothing else can come in between.
            return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        finally:
            os.close(seen)

    def _read(
        self, folder: _Folder, fd: int, folders: list[_Folder | _Left]
    ) -> Iterator[Found | FoundFolder | Refused]:
        empty = True
        own = os.fstat(fd)
        here = FoundFolder(folder.path, own.st_mode & 0o777, own.st_mtime_ns, False)
        if folder.path:
            folders.append(_Left(here, self._found))
        with os.scandir(fd) as entries:
            for entry in entries:
                empty = False
                self._entries += 1
                if self._entries > _MOST_ENTRIES:
                    raise TooMany(f"the working directory holds more than {_MOST_ENTRIES} entries")
                path = f"{folder.path}/{entry.name}" if folder.path else entry.name
                real = f"{folder.real}/{entry.name}" if folder.real else entry.name
                try:
                    status = os.lstat(entry.name, dir_fd=fd)
                except FileNotFoundError:  # gone since the folder was read
                    continue
                yield from self._entry(folder, entry.name, path, real, status, folders)
        if empty and folder.whole and folder.path:
            folders.pop()
            self._found += 1
            yield replace(here, is_empty=True)

    def _entry(
        self, folder: _Folder, name: str, path: str, real: str, status: os.stat_result, folders: list[_Folder | _Left]
    ) -> Iterator[Found | Refused]:
        came_from = folder.came_from
        why_not: tuple[str, Loss] | None = None
        here = real
        if is_link := stat.S_ISLNK(status.st_mode):
            real, status, why_not = self._resolve(real, status)
            came_from = (*came_from, folder.real)
        is_folder = stat.S_ISDIR(status.st_mode)
        step = self._patterns.enter(folder.states, name, is_folder=is_folder)
        self._matched |= step.matched
        wanted = folder.whole or bool(step.matched)
        if not wanted and not (is_folder and step.inside):
            return
        why_not = why_not or self._why_not(path, status)
        if why_not is None and is_link and is_folder and any(_is_in(place, real) for place in came_from):
            why_not = _TO_ITS_OWN_FOLDER
        kept = is_link and wanted and path == here and why_not in _MAY_STAY and self._keep_link(path, real, why_not)
        if why_not is not None:
            if wanted:
                yield Refused(path, *why_not, kept)
            return
        if is_folder:
            folders.append(_Folder(path, real, step.inside, wanted, came_from))
        else:
            self._found += 1
            yield Found(path, real, status.st_mode & 0o777)

    def _keep_link(self, path: str, real: str, why_not: tuple[str, Loss] | None) -> bool:
        """Whether it is kept as a link."""
        target = self._link_at(path)
        if target is None or len(self.links) >= _MOST_LINKS or as_text(path + target) != path + target:
            return False
        self.links.append(OutputLink(path=path, target=target, real=real, bare=why_not is not None))
        self._found += 1
        return True

    def _why_not(self, path: str, status: os.stat_result) -> tuple[str, Loss] | None:
        try:
            if len(path.encode()) > MAX_PATH_BYTES:
                return f"its path is longer than {MAX_PATH_BYTES} bytes", Loss.CONTENT
        except UnicodeEncodeError:
            return "its name is not UTF-8, which not every store can hold: rename it in the job", Loss.CONTENT
        if path.count("/") >= MAX_DEPTH:
            return f"it lies more than {MAX_DEPTH} folders deep", Loss.CONTENT
        if stat.S_ISDIR(status.st_mode):
            return None
        return self._why_no_file(status)

    def _why_no_file(self, status: os.stat_result) -> tuple[str, Loss] | None:
        if stat.S_ISLNK(status.st_mode):
            return "it is a link that was put there meanwhile", Loss.OTHERS
        if not stat.S_ISREG(status.st_mode):
            return "it is a named pipe, a socket or a device", Loss.NOTHING
        if status.st_nlink > 1 and status.st_uid != self.owner:
            return "it is a hard link to a file of somebody else", Loss.OTHERS
        return None

    def _resolve(self, path: str, status: os.stat_result) -> tuple[str, os.stat_result, tuple[str, Loss] | None]:
        """Where a link leads, what is there, and why that is refused."""
        try:
            real = follow(path, self._link_at)
            parent = self._open_folder(posixpath.dirname(real))
            try:
                return real, os.lstat(posixpath.basename(real) or ".", dir_fd=parent), None
            finally:
                os.close(parent)
        except LeadsOut as out:
            return path, status, (f"it is a link and {_of_job(out)}", Loss.OTHERS)
        except OSError:
            return path, status, _TO_NOTHING

    def _link_at(self, path: str) -> str | None:
        if path.count("/") >= MAX_DEPTH:
            raise LeadsOut(f"it leads more than {MAX_DEPTH} folders deep")
        folder, name = posixpath.split(path)
        try:
            parent = self._open_folder(folder)
        except OSError:
            return None
        try:
            target = os.readlink(name, dir_fd=parent)
        except OSError:
            return None
        finally:
            os.close(parent)
        for prefix in self._prefixes:  # an absolute link to something inside stays inside
            if f"{target}/".startswith(prefix):
                return "../" * path.count("/") + (target[len(prefix) :] or ".")
        return target

    def _open_folder(self, path: str) -> int:
        """The folder at a path without links; raises OSError where there is a link in it, or no folder. Always from the
        top, so that an open folder that was moved away is not read on; hence the bound on depth."""
        fd = os.dup(self._root)
        for part in path.split("/") if path else ():
            try:
                inner = os.open(part, _FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd


class TooMany(Exception):
    """There is more than is ever read."""


def refusal(refused: Refused) -> str:
    """The sentence for a manifest."""
    return f"{shown(refused.path)}: {refused.why}"


def _is_in(path: str, folder: str) -> bool:
    return folder == "" or path == folder or path.startswith(f"{folder}/")


def _of_job(out: LeadsOut) -> str:
    return str(out).removeprefix("it ").replace("the submitted directory", "the working directory")
