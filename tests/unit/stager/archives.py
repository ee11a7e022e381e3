"""Archives and trees to order, honest and hostile."""

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from services.stager.listing import Limits, Tree, Unsafe, list_snapshot


def entry(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """An entry as `archive` takes it."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, target, len(content)
    return info, content


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, kind=tarfile.SYMTYPE, target=target)


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, kind=tarfile.DIRTYPE, mode=mode)


def archive(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> IO[bytes]:
    """A `.tar.gz` of these entries."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=form, errors="surrogateescape") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    packed.seek(0)
    return packed


def gzipped(data: bytes) -> IO[bytes]:
    return io.BytesIO(gzip.compress(data))


def listed(packed: IO[bytes], limits: Limits | None = None) -> Tree:
    packed.seek(0, os.SEEK_END)
    return list_snapshot(packed, packed.tell(), limits or Limits())


def refusals(packed: IO[bytes], limits: Limits | None = None) -> list[str]:
    """The sentences with which an archive is refused; none where it is not."""
    try:
        listed(packed, limits)
    except Unsafe as unsafe:
        return [finding.message for finding in unsafe.findings]
    return []


def written(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """A directory with these files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read_back(root: Path) -> dict[bytes, bytes]:
    """Every regular file below a directory by its path's bytes."""
    found: dict[bytes, bytes] = {}
    top = os.fsencode(root)
    for here, _, names in os.walk(top):
        for name in names:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, top)] = file.read()
    return found
