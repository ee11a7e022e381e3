"""Which paths the output patterns of a job name. The grammar is in this service's README.

Read top down with the tree: `enter` gives what is left to match in a folder, so that folders which cannot hold a match
are never opened.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_ANY_DEPTH: Final = "**"


@dataclass(frozen=True, slots=True)
class Step:
    """What one name of a folder is to the patterns."""

    matched: frozenset[int]
    """The patterns (by place) that the name completes."""
    inside: frozenset[tuple[int, int]]
    """What is left to match in it, should it be a folder."""


class Patterns:
    """The patterns of one job, compiled."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.texts = tuple(patterns)
        self._parts = [[part for part in text.split("/") if part not in ("", ".")] for text in patterns]
        self._folder_only = [text.endswith("/") for text in patterns]
        self._regexes = {
            part: re.compile(fnmatch.translate(part)) for parts in self._parts for part in parts if part != _ANY_DEPTH
        }

    def start(self) -> frozenset[tuple[int, int]]:
        """What is to match in the job's directory itself."""
        return frozenset((place, 0) for place, parts in enumerate(self._parts) if parts)

    def whole(self) -> frozenset[int]:
        """The patterns that name the job's directory itself (`.`)."""
        return frozenset(place for place, parts in enumerate(self._parts) if not parts)

    def enter(self, states: frozenset[tuple[int, int]], name: str, *, is_folder: bool) -> Step:
        """Match one name of a folder that `states` were left for."""
        matched: set[int] = set()
        inside: set[tuple[int, int]] = set()
        for place, at in states:
            parts = self._parts[place]
            while parts[at] == _ANY_DEPTH:
                inside.add((place, at))
                at += 1
                if at == len(parts):  # `model/**`: everything in it
                    matched.add(place)
                    break
            else:
                part = parts[at]
                if name == part or self._regexes[part].match(name):
                    if at + 1 < len(parts):
                        inside.add((place, at + 1))
                    elif is_folder or not self._folder_only[place]:
                        matched.add(place)
        return Step(frozenset(matched), frozenset(inside))

    def names(self, path: str, *, is_folder: bool) -> bool:
        """Whether they name a path, or a folder that it lies in."""
        if self.whole():
            return True
        states = self.start()
        *folders, last = path.split("/")
        for name, folder in (*((name, True) for name in folders), (last, is_folder)):
            step = self.enter(states, name, is_folder=folder)
            if step.matched:
                return True
            states = step.inside
        return False
