"""What a snapshot leaves out: `.git`, and what `.gitignore` and `.tidegateignore` name, as git reads such files.

A file nearer to the path decides before one further up; in one folder `.tidegateignore` comes after `.gitignore`, so
that its `!name` brings back what git does not keep. The `.gitignore` files above the directory count up to the
repository's root.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pathspec import GitIgnoreSpec

_FILES: Final = (".gitignore", ".tidegateignore")
_NEVER: Final = ".git"


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one folder; `prefix` is cut off a path before they are asked."""

    prefix: str
    above: str
    """What stands between the rules' folder and the packed directory, for rules from above it."""
    spec: GitIgnoreSpec

    def ask(self, path: str, *, is_folder: bool) -> bool | None:
        name = self.above + path[len(self.prefix) :] + ("/" if is_folder else "")
        return self.spec.check_file(name).include


class Ignores:
    """The rules that hold in one folder of a packed directory, and the paths that are packed in spite of them."""

    def __init__(
        self, root: str, kept: Iterable[str], rules: Sequence[_Rules] | None = None, *, only_kept: bool = False
    ) -> None:
        self._root = root
        self._kept = tuple(kept)
        self._rules = _from_above(root) if rules is None else rules
        self._only_kept = only_kept

    def inside(self, folder: str) -> "Ignores":
        """The rules for what is in `folder`: its own come first. Of an ignored folder only kept paths are packed."""
        spec = _read(f"{self._root}/{folder}" if folder else self._root, _FILES)
        own = [] if spec is None else [_Rules(f"{folder}/" if folder else "", "", spec)]
        only_kept = self._only_kept or (folder != "" and self._ignored(folder, is_folder=True))
        return Ignores(self._root, self._kept, [*own, *self._rules], only_kept=only_kept)

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether `path` stays behind. What leads to a kept path does not, nor does what lies in a kept folder."""
        if path.rpartition("/")[2] == _NEVER:
            return True
        if any(path == kept or _is_below(path, kept) for kept in self._kept):
            return False
        if is_folder and any(_is_below(kept, path) for kept in self._kept):
            return False
        return self._only_kept or self._ignored(path, is_folder=is_folder)

    def _ignored(self, path: str, *, is_folder: bool) -> bool:
        for rules in self._rules:
            if path.startswith(rules.prefix) and (answer := rules.ask(path, is_folder=is_folder)) is not None:
                return answer
        return False


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


def _read(folder: str, names: Sequence[str]) -> GitIgnoreSpec | None:
    lines: list[str] = []
    for name in names:
        try:
            with open(f"{folder}/{name}", encoding="utf-8", errors="surrogateescape") as file:
                lines += file.read().splitlines()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
    return _spec(lines) if lines else None


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # some line means nothing, such as a lone `!`: git passes over it
        return GitIgnoreSpec.from_lines(line for line in lines if _means_something(line))


def _means_something(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _from_above(root: str) -> list[_Rules]:
    """The rules of the repository that the directory lies in, nearest first; none where it lies in no repository, or
    where they would leave out the directory itself: who submits it wants what is in it."""
    found: list[_Rules] = []
    folder = root
    while not os.path.lexists(f"{folder}/{_NEVER}"):
        folder, name = os.path.split(folder)
        if not name:
            return []
        spec = _read(folder, (".gitignore",))
        if spec is not None:
            above = os.path.relpath(root, folder)
            if spec.match_file(above + "/"):
                return []
            found.append(_Rules("", above + "/", spec))
    return found
