"""Outputs that were brought back before, to lie in a new working directory: those of a pipeline's earlier steps in
their order, then those of an earlier attempt of the job itself."""

import posixpath
from collections.abc import Callable, Sequence
from typing import Final

from services.stager.blobs import Blobs, Corrupt, GoOn
from services.stager.listing import Member, Tree, clean_path
from services.stager.restore import restore
from services.stager.tar import Kind
from shared.contracts.queries import Manifest, OutputFile
from shared.contracts.snapshot import shown

_FOLDER: Final = Member(Kind.FOLDER, 0o755, -1, "")


class Earlier:
    """The files of several manifests; of files with one name the last manifest's counts."""

    def __init__(self, blobs: Blobs, names: Sequence[str]) -> None:
        """Reads the manifests `names`. Raises StoreError where the store does not give them."""
        self._blobs = blobs
        self._manifests = [Manifest.model_validate_json(blobs.get(name)) for name in names]
        self._last: dict[str, tuple[Manifest, OutputFile]] = {}
        for manifest in self._manifests:
            for file in manifest.files:
                if not clean_path(file.path):
                    raise Corrupt(f"a manifest names {shown(file.path)}, which is no path of an output")
                self._last[file.path] = manifest, file

    @property
    def size_bytes(self) -> int:
        """What lying in takes."""
        return sum(file.size_bytes for _, file in self._last.values())

    def over(self, tree: Tree) -> Tree:
        """The working directory as a check sees it: what was submitted, and these files over it."""
        if not self._last:
            return tree
        members = dict(tree.members)
        for path, (_, file) in self._last.items():
            parent = posixpath.dirname(path)
            while parent and ((known := members.get(parent)) is None or known.kind is not Kind.FOLDER):
                members[parent] = _FOLDER
                parent = posixpath.dirname(parent)
            kind = Kind.FOLDER if file.kind == "directory" else Kind.FILE
            members[path] = Member(kind, file.mode, file.size_bytes, "")
        return Tree(members, tree.bytes + self.size_bytes)

    def head_over(self, head: Callable[[str], bytes], size: int) -> Callable[[str], bytes]:
        """The first bytes of a file, which `head` gives where it is none of these."""

        def first(path: str) -> bytes:
            if path not in self._last:
                return head(path)
            manifest, file = self._last[path]
            return self._blobs.first(manifest.prefix + file.key, min(size, file.size_bytes))

        return first

    def lay_in(self, into: int, go_on: GoOn) -> None:
        """Write the files below the directory `into` (a descriptor), each once, compared with their digests."""
        for manifest in self._manifests:
            files = [file for file in manifest.files if self._last[file.path][0] is manifest]
            restore(self._blobs, manifest.model_copy(update={"files": files}), into, go_on)
