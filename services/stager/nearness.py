"""What somebody may have meant: near matches of names, bounded in time however many names there are."""

import difflib
import posixpath
from collections.abc import Iterable
from itertools import islice
from typing import Final

_MOST: Final = 5000
_CUTOFF: Final = 0.6


def near_word(given: str, names: Iterable[str]) -> str | None:
    """The name most like `given`; None where none is alike."""
    found = difflib.get_close_matches(given, sorted(set(islice(names, _MOST))), 1, _CUTOFF)
    return found[0] if found else None


def near_path(given: str, paths: Iterable[str]) -> str | None:
    """The path most likely meant: of that very name elsewhere, then alike in the same folder, then alike as a whole."""
    wanted = posixpath.normpath(given)
    folder, name = posixpath.split(wanted)
    known = list(paths)
    elsewhere = min((path for path in known if posixpath.basename(path) == name), key=len, default=None)
    if elsewhere is not None:
        return elsewhere
    beside = near_word(name, (posixpath.basename(path) for path in known if posixpath.dirname(path) == folder))
    return posixpath.join(folder, beside) if beside is not None else near_word(wanted, known)
