"""The GPUs of this machine, or virtual ones, and who holds which."""

from __future__ import annotations

import os

VIRTUAL_DEFAULT = 8


class Devices:
    """Numbered GPUs, each held by one submission at most."""

    def __init__(self, total: int, *, virtual: bool) -> None:
        self.total = total
        self.virtual = virtual
        self._holder: dict[int, str] = {}

    @property
    def free(self) -> int:
        """How many nobody holds."""
        return sum(1 for index in range(self.total) if index not in self._holder)

    def take(self, submission: str, count: int) -> list[int] | None:
        """`count` free ones for this submission, or None when there are too few: nothing is shared."""
        free = [index for index in range(self.total) if index not in self._holder]
        if count > len(free):
            return None
        for index in free[:count]:
            self._holder[index] = submission
        return free[:count]

    def mark_held(self, submission: str, indices: list[int]) -> None:
        """Book what the records of a live submission say, whatever this host would have chosen."""
        for index in indices:
            self._holder.setdefault(index, submission)

    def release(self, submission: str) -> None:
        """Free what the submission holds. Idempotent."""
        self._holder = {index: holder for index, holder in self._holder.items() if holder != submission}


def find_devices(virtual: int | None) -> Devices:
    """`virtual` virtual GPUs if a number is given; else the real ones; where there are none, 8 virtual ones."""
    if virtual is not None:
        return Devices(virtual, virtual=True)
    real = sum(1 for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit())
    return Devices(real, virtual=False) if real else Devices(VIRTUAL_DEFAULT, virtual=True)
