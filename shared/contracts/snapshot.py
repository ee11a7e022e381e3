"""What a snapshot is: a submitted directory as one reproducible `.tar.gz`, known by the sha256 of that file's bytes.

The packer (client) and the reader (stager) agree on this module, so that what one makes the other takes. Names are byte
strings; as text they are decoded with `os.fsdecode` (UTF-8 with surrogate escapes), which loses nothing.
"""

from collections.abc import Callable
from typing import Final

MAX_MEMBERS: Final = 200_000
"""Files, folders and links in one snapshot."""
MAX_PATH_BYTES: Final = 4095
MAX_NAME_BYTES: Final = 255
MAX_DEPTH: Final = 128
"""Folders in one another: what walks and removes trees needs a bound."""
_LONGEST_SHOWN: Final = 120
_MAX_LINKS: Final = 40  # what Linux follows in one path: path_resolution(7)


class LeadsOut(ValueError):
    """A path or link leaves the directory, or follows links for ever; the text says where it leads."""


def follow(path: str, link_at: Callable[[str], str | None]) -> str:
    """Where `path` (relative, of this directory) leads when every link is followed as the kernel would; `""` is the
    directory itself. `link_at` gives a link's target, None for what is no link. Nothing needs to exist."""
    waiting = path.split("/")[::-1]
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                raise LeadsOut("it leads above the submitted directory")
            here.pop()
            continue
        target = link_at("/".join((*here, part)))
        if target is None:
            here.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise LeadsOut("its links run in a circle")
        if target.startswith("/"):
            raise LeadsOut(f"it leads to {shown(target)}, an absolute path")
        waiting.extend(target.split("/")[::-1])
    return "/".join(here)


def shown(name: str) -> str:
    """A name as it may stand in a sentence: quoted, whatever is not printable escaped (`'a\\nb'`, `'caf\\xe9'`), the
    middle of a very long one left out."""
    if len(name) > _LONGEST_SHOWN:
        name = f"{name[: _LONGEST_SHOWN // 2]}…{name[-_LONGEST_SHOWN // 2 :]}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return _escaped(name)
    return repr(name)


def _escaped(name: str) -> str:
    try:
        return repr(name.encode("utf-8", "surrogateescape"))[1:]
    except UnicodeEncodeError:  # half of a pair, which no file's name decodes to
        return ascii(name)


def why_bad_name(path: str) -> str | None:
    """Why no file can have this (relative) path, None where one can."""
    if path.count("/") >= MAX_DEPTH:
        return f"it lies more than {MAX_DEPTH} folders deep"
    size = len(path.encode("utf-8", "surrogateescape"))
    if size > MAX_PATH_BYTES:
        return f"its path has {size} bytes; at most {MAX_PATH_BYTES} are possible"
    longest = max(len(part.encode("utf-8", "surrogateescape")) for part in path.split("/"))
    if longest > MAX_NAME_BYTES:
        return f"a part of its path has {longest} bytes; at most {MAX_NAME_BYTES} are possible"
    return "its name holds a NUL byte" if "\0" in path else None
