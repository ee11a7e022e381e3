"""What the directory and the outputs of a lease are called, so that no two leases ever share a name."""

import re
from typing import Final, NamedTuple, Self

_TEXT: Final = re.compile(r"e(?:(\d+)\.)?(\d+)")


class Mark(NamedTuple):
    """The epoch of the database and the lease's own: after a restore leases are counted from an older number on, and
    what the lost time made keeps its names. Written `e<lease>` in the first epoch, `e<epoch>.<lease>` in later ones;
    a later lease's is the higher one."""

    epoch: int
    lease: int

    def __str__(self) -> str:
        return f"e{self.lease}" if self.epoch == 1 else f"e{self.epoch}.{self.lease}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The mark that was written so; None for any other text."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(int(found[1] or 1), int(found[2]))
