"""What a snapshot holds, known and found safe before anything of it is written."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final

from services.stager.tar import Entry, Kind, TarError, TarReader
from shared.contracts.snapshot import MAX_MEMBERS, LeadsOut, follow, shown, why_bad_name
from shared.lifecycle.facts import Finding

_RATIO_FROM_BYTES: Final = 256 << 20
_MAX_RATIO: Final = 200
_MAX_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one snapshot may hold."""

    members: int = MAX_MEMBERS
    bytes: int = 256 << 30


@dataclass(frozen=True, slots=True)
class Member:
    """Something at a path of the snapshot, link or not."""

    kind: Kind
    mode: int
    size: int
    target: str


@dataclass(slots=True)
class Tree:
    """The paths of a snapshot; the folders that entries lie in are there too."""

    members: dict[str, Member] = field(default_factory=dict)
    bytes: int = 0

    def at(self, path: str) -> tuple[str, Member] | None:
        """Where `path` leads, links followed, and what is there; None where nothing is, or it leads out."""
        try:
            end = follow(path, self.link_at)
        except LeadsOut:
            return None
        member = _ROOT if end == "" else self.members.get(end)
        return None if member is None else (end, member)

    def link_at(self, path: str) -> str | None:
        """The target of the link at exactly `path`."""
        member = self.members.get(path)
        return member.target if member is not None and member.kind is Kind.LINK else None


_ROOT: Final = Member(Kind.FOLDER, 0o755, 0, "")
_IMPLIED: Final = Member(Kind.FOLDER, 0o755, -1, "")


class Unsafe(Exception):
    """The snapshot is refused as a whole; the findings name the entries."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


def read_entries(archive: IO[bytes]) -> Iterator[tuple[Entry, TarReader]]:
    """The entries of a `.tar.gz` from its beginning, each with the reader that gives its content; raises Unsafe where
    the file cannot be read."""
    archive.seek(0)
    try:
        with gzip.GzipFile(fileobj=archive, mode="rb") as plain:
            reader = TarReader(plain)
            for entry in reader:
                yield entry, reader
    except (TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unsafe([_unreadable(error)]) from error


def list_snapshot(
    archive: IO[bytes], archive_bytes: int, limits: Limits, go_on: Callable[[], None] = lambda: None
) -> Tree:
    """Read the whole archive without writing anything. Raises Unsafe with every finding, at most twenty of them."""
    tree = Tree()
    findings: list[Finding] = []
    for count, (entry, _) in enumerate(read_entries(archive), 1):
        go_on()
        tree.bytes += entry.size
        if bomb := _bomb(count, tree.bytes, archive_bytes, limits):
            raise Unsafe([*findings, bomb])
        finding = _add(tree, entry)
        if finding is not None and len(findings) < _MAX_FINDINGS:
            findings.append(finding)
    findings += _links_out(tree)
    if findings:
        raise Unsafe(findings[:_MAX_FINDINGS])
    return tree


def clean_path(path: str) -> str | None:
    """An entry's path in its shortest form; None where it leads out of the archive."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if path.startswith("/") or ".." in parts else "/".join(parts)


def _add(tree: Tree, entry: Entry) -> Finding | None:
    path = clean_path(entry.path)
    if path is None:
        return _unsafe(entry, "its name leads out of the directory")
    if why := why_bad_name(path or "."):
        return _unsafe(entry, why)
    if entry.kind is Kind.OTHER:
        return _unsafe(entry, f"it is {entry.what}")
    if path == "":
        return None if entry.kind is Kind.FOLDER else _unsafe(entry, "its name is that of the directory itself")
    if why := _taken(tree, path, entry):
        return _unsafe(entry, why)
    mode, target = entry.mode, entry.target
    if entry.kind is Kind.HARD_LINK:
        source = clean_path(target)
        original = None if source is None else tree.members.get(source)
        if source is None or original is None or original.kind is not Kind.FILE:
            return _unsafe(
                entry, f"it is a hard link to {shown(target)}, which is no file that came before it in there"
            )
        tree.bytes += original.size
        mode, target = original.mode, source
    tree.members[path] = Member(entry.kind, mode & 0o777, entry.size, target)
    return None


def _taken(tree: Tree, path: str, entry: Entry) -> str | None:
    """Why nothing more can be put at `path`; makes the folders that lead to it."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        known = tree.members.setdefault(parent, _IMPLIED)
        if known.kind is not Kind.FOLDER:
            return f"it lies in {shown(parent)}, which is a {known.kind} in there"
    known_here = tree.members.get(path)
    if known_here is None or (known_here.kind is Kind.FOLDER and entry.kind is Kind.FOLDER):
        return None
    return f"there is a {known_here.kind} of that name in there already"


def _links_out(tree: Tree) -> Iterator[Finding]:
    for path, member in tree.members.items():
        if member.kind is Kind.LINK:
            try:
                follow(path, tree.link_at)
            except LeadsOut as out:
                yield Finding(
                    code="unsafe_link", place=_place(path), message=f"the link {shown(path)} is refused: {out}"
                )


def _bomb(count: int, size: int, archive_bytes: int, limits: Limits) -> Finding | None:
    if count > limits.members:
        return _too_much(f"it holds more than {limits.members} files and folders", "pack many small files into one")
    if size > limits.bytes:
        return _too_much(f"unpacked it has more than {limits.bytes} bytes", "leave out what the job does not need")
    if size > _RATIO_FROM_BYTES and size > _MAX_RATIO * archive_bytes:
        said = f"{archive_bytes} bytes unpack to more than {size}, over {_MAX_RATIO} times as much"
        return _too_much(said, "create files that are all alike in the job itself")
    return None


def _too_much(what: str, instead: str) -> Finding:
    message = f"the submitted directory is too large to stage: {what}; {instead}"
    return Finding(code="snapshot_too_large", place="snapshot", message=message)


def _unsafe(entry: Entry, why: str) -> Finding:
    return Finding(
        code="unsafe_entry", place=_place(entry.path), message=f"{shown(entry.path)} in the snapshot is refused: {why}"
    )


def _unreadable(error: Exception) -> Finding:
    message = f"the snapshot cannot be read ({error}): submit again; a snapshot is a .tar.gz file"
    return Finding(code="snapshot_unreadable", place="snapshot", message=message)


def _place(path: str) -> str:
    return shown(path)[1:-1]
