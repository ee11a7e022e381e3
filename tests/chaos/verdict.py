"""What a judge has found."""

from typing import Final

_SHOWN: Final = 6


class Verdict:
    """What was found: `wrong` never becomes right by waiting, `left` may. `casualties` are jobs whose supervisor was
    killed: nobody can say how they ended, and that is what is to be said."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.left: list[str] = []
        self.areas: list[str] = []
        """Staged or copied by somebody whose work does not count."""
        self.casualties: set[str] = set()
        self.unrecorded: set[str] = set()
        """Jobs that ran and of whose end the runner has no record."""

    def __str__(self) -> str:
        found = [*self.wrong, *self.left, *self.areas]
        more = [f"… and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        return "\n  ".join([*found[:_SHOWN], *more])
