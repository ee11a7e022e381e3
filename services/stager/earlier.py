"""Outputs that were brought back before, to lie in a new working directory: those of a pipeline's earlier steps in
their order, then those of earlier attempts of the job itself.

Of the job's own each file is as the newest attempt left it whose copy of it came back. What its output patterns name
and it had removed stays removed, whether it was submitted, made by an earlier step, or its own.
"""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from services.stager.blobs import Blobs, Corrupt, GoOn
from services.stager.folders import Look
from services.stager.listing import Member, Tree, clean_path
from services.stager.manifest import as_text
from services.stager.patterns import Patterns
from services.stager.restore import make_links, remove, restore
from services.stager.tar import Kind
from shared.contracts.queries import Manifest, OutputFile, OutputFolder, OutputLink
from shared.contracts.snapshot import shown

_FOLDER: Final = Member(Kind.FOLDER, 0o755, -1, "")
_SAID: Final = 3


@dataclass(frozen=True, slots=True)
class Copy:
    """What an earlier attempt of the job brought back: the name of its manifest, none where its copy failed wholly."""

    attempt: int
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Before:
    """What was brought back before an attempt: by the pipeline's steps before it, the first step's manifest first, and
    by the job's own earlier attempts, the newest first."""

    steps: tuple[str, ...] = ()
    own: tuple[Copy, ...] = ()


class Earlier:
    """The files that go over what was submitted. `warnings` say what of the job's own is not as it was left."""

    def __init__(self, blobs: Blobs, before: Before, patterns: Sequence[str]) -> None:
        """Reads the manifests. Raises StoreError where the store does not give them."""
        self._blobs = blobs
        self._last: dict[str, tuple[Manifest, OutputFile]] = {}
        steps = [_read(blobs, name) for name in before.steps]
        self._left = _left_by(blobs, before.own, Patterns(patterns))
        for manifest in steps:
            self._put(manifest)
        for left in self._left:
            self._last = {
                path: found
                for path, found in self._last.items()
                if not left.has_removed(path, is_folder=found[1].kind == "directory")
            }
            self._put(left.manifest)
        self._links = self._still_links()
        self._manifests = [*steps, *(left.manifest for left in self._left)]
        self.warnings = tuple(self._not_as_left(before.own))

    @property
    def size_bytes(self) -> int:
        """What lying in takes."""
        return sum(file.size_bytes for _, file in self._last.values())

    def over(self, tree: Tree) -> Tree:
        """The working directory as a check sees it: what was submitted, and these files over it."""
        if not self._manifests:
            return tree
        members = dict(tree.members)
        for path in self._removed(tree):
            if members[path].kind is not Kind.FOLDER:
                del members[path]
        for path, (_, file) in self._last.items():
            parent = posixpath.dirname(path)
            while parent and ((known := members.get(parent)) is None or known.kind is not Kind.FOLDER):
                members[parent] = _FOLDER
                parent = posixpath.dirname(parent)
            kind = Kind.FOLDER if file.kind == "directory" else Kind.FILE
            members[path] = Member(kind, file.mode, file.size_bytes, "")
        for link in self._links:
            members[link.path] = Member(Kind.LINK, 0o777, 0, link.target)
        return Tree(members, tree.bytes + self.size_bytes)

    def head_over(self, head: Callable[[str], bytes], size: int) -> Callable[[str], bytes]:
        """The first bytes of a file, which `head` gives where it is none of these."""

        def first(path: str) -> bytes:
            if path not in self._last:
                return head(path)
            manifest, file = self._last[path]
            return self._blobs.first(manifest.prefix + file.key, min(size, file.size_bytes))

        return first

    def lay_in(self, into: int, tree: Tree, unknown_ns: int, go_on: GoOn) -> None:
        """Write the files below the directory `into` (a descriptor) that holds `tree`, each once, compared with their
        digests; what had been removed goes. `unknown_ns` is the time of those whose own nobody knows."""
        remove(self._removed(tree), into)
        for manifest in self._manifests:
            files = [file for file in manifest.files if self._last.get(file.path, (None,))[0] is manifest]
            restore(self._blobs, manifest.model_copy(update={"files": files}), unknown_ns, into, go_on)
        make_links(self._links, into)

    def folders(self, unknown_ns: int) -> dict[str, Look]:
        """How the folders are in which these files lie, and those with nothing in them; some may not be there."""
        looks: dict[str, Look] = {}
        for manifest in self._manifests:
            for path, (last, file) in self._last.items():
                if last is manifest and file.kind == "directory":
                    looks[path] = _look(file, unknown_ns)
            looks |= {folder.path: _look(folder, unknown_ns) for folder in manifest.folders}
        return looks

    def _put(self, manifest: Manifest) -> None:
        self._last |= {file.path: (manifest, file) for file in manifest.files}

    def _still_links(self) -> list[OutputLink]:
        """The newest attempt's links to what is here again; what came back in their place is not needed then."""
        folders = {folder for path in self._last for folder in _folders(path)}
        links = []
        for link in self._left[-1].manifest.links if self._left else ():
            if link.bare or link.real in self._last or link.real in folders:
                links.append(link)
        paths = {link.path for link in links}
        self._last = {
            path: found
            for path, found in self._last.items()
            if path not in paths and not any(folder in paths for folder in _folders(path))
        }
        return links

    def _removed(self, tree: Tree) -> Iterator[str]:
        for path, member in tree.members.items():
            is_folder = member.kind is Kind.FOLDER
            if path not in self._last and any(left.has_removed(path, is_folder=is_folder) for left in self._left):
                yield path

    def _not_as_left(self, own: Sequence[Copy]) -> Iterator[str]:
        """Sentences: what the newest copy is without, and what an older one gave in its place."""
        if own and own[0].manifest is None:
            yield f"nothing of what attempt {own[0].attempt} left could be copied back, so none of it is here"
        if not self._left:
            return
        *before, newest = (left.manifest for left in self._left)
        if newest.problems:
            yield f"attempt {newest.attempt} left more than came back: {_some(newest.problems)}"
        for manifest in before:
            older = [shown(path) for path, (last, _) in self._last.items() if last is manifest]
            if older:
                yield f"as attempt {manifest.attempt} left them, as no later copy came back: {_some(older)}"


class _Left:
    """What one earlier attempt of the job left behind, as far as it came back."""

    def __init__(self, manifest: Manifest, patterns: Patterns) -> None:
        self.manifest = manifest
        self._patterns = patterns
        self._paths = {file.path for file in manifest.files}
        self._lost = frozenset(manifest.lost)

    def has_removed(self, path: str, *, is_folder: bool) -> bool:
        """Whether the attempt certainly ended without that path, which the patterns name."""
        if path in self._paths or not self._patterns.names(path, is_folder=is_folder):
            return False
        if not self._lost:
            return True
        inside = as_text(path)
        while inside and inside not in self._lost:
            inside = posixpath.dirname(inside)
        return inside not in self._lost


def _left_by(blobs: Blobs, own: Sequence[Copy], patterns: Patterns) -> list[_Left]:
    """The newest last; before it only what is needed because it is not whole."""
    found: list[_Left] = []
    for copy in own:
        if copy.manifest is not None:
            found.append(_Left(_read(blobs, copy.manifest), patterns))
            if not found[-1].manifest.lost:
                break
    return found[::-1]


def _folders(path: str) -> Iterator[str]:
    """Those that it lies in."""
    while path := posixpath.dirname(path):
        yield path


def _look(folder: OutputFile | OutputFolder, unknown_ns: int) -> Look:
    return Look(folder.mode, unknown_ns if folder.modified_ns is None else folder.modified_ns)


def _read(blobs: Blobs, name: str) -> Manifest:
    manifest = Manifest.model_validate_json(blobs.get(name))
    for file in manifest.files:
        if not clean_path(file.path):
            raise Corrupt(f"a manifest names {shown(file.path)}, which is no path of an output")
    return manifest


def _some(items: Sequence[str]) -> str:
    more = f"; and {len(items) - _SAID} more" if len(items) > _SAID else ""
    return "; ".join(items[:_SAID]) + more
