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
    """The path most likely meant: alike in the same folder, then of that name elsewhere, then alike as a whole."""
    folder, name = posixpath.split(posixpath.normpath(given))
    known = list(paths)
    beside = near_word(name, (posixpath.basename(path) for path in known if posixpath.dirname(path) == folder))
    if beside is not None:
        return posixpath.join(folder, beside)
    elsewhere = min((path for path in known if posixpath.basename(path) == name), key=len, default=None)
    return elsewhere or near_word(posixpath.normpath(given), known)
