"""The kinds of jobs and workstations that a person handles, and what the command of each does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Kind = Literal["plain", "saving", "stubborn", "leaving", "failing", "flaky"]
Desk = Literal["idle", "busy", "short"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DESKS: Final[tuple[Desk, ...]] = get_args(Desk)
FAILS_WITH: Final = 7
IDLE_SECONDS: Final[Mapping[str, int]] = {"idle": 4, "busy": 12}
"""After which a workstation that nobody uses is suspended. The busy one is used all the time."""
LIFETIME_SECONDS: Final = 4


@dataclass(frozen=True)
class Variety:
    """What there may be in a history: automatic retries of what fails, and workstations, which take room for as long as
    nobody ends them."""

    retries: Sequence[int]
    desks: Sequence[Desk]
    most_desks: int


ANYTHING: Final = Variety((0, 1, 1, 2), DESKS, 5)
NOTHING_SLOW: Final = Variety((0,), ("busy",), 1)
"""Nobody waits for a cooldown, an idle workstation, or the end of a lifetime."""

# A lock that all of a command holds, so that the next attempt sees whether anything of an earlier one lives.
_BEGIN: Final = r"""
say() { printf '%s %s %s %s %s %s\n' "$1" "$TIDEGATE_JOB_ID" "$TIDEGATE_ATTEMPT" "$TIDEGATE_SUBMISSION" \
    "$(date +%s.%N)" "$2" >> "$0"; }
exec 9>> "$0.$TIDEGATE_JOB_ID"
flock -n 9 || say overlapped $$
say began $$
say found "=$(cat done.txt 2> /dev/null)"
printf '%s.%s,' "$TIDEGATE_JOB_ID" "$TIDEGATE_ATTEMPT" >> done.txt
say wrote $$
"""
_END: Final = "\nsay ended $$\n"
_WORK: Final[Mapping[Kind | Desk, str]] = {
    "plain": 'sleep "$1"',
    "saving": """trap 'say saved $$; exit 0' TERM; sleep "$1" & wait $!""",
    "stubborn": """trap '' TERM; sleep "$1" """,
    "leaving": '(setsid sleep 3600 > /dev/null 2>&1 &); sleep "$1"',
    "failing": 'sleep "$1"',
    "flaky": 'sleep "$1"',
    "idle": "sleep 3600",
    "busy": 'while :; do touch "$TIDEGATE_HEARTBEAT"; sleep 0.5; done',
    "short": "sleep 3600",
}
"""What each does, a job for as long as its first argument says: one saves what it has, one hears no SIGTERM, one leaves
a process behind that has run away from its group, one fails in every other attempt. A workstation works until it is
ended: one is used, one is not, one may be up for a few seconds only."""
_CODE: Final[Mapping[Kind | Desk, str]] = {
    "failing": f"{FAILS_WITH}",
    "flaky": f"$((TIDEGATE_ATTEMPT % 2 * {FAILS_WITH}))",
}


@dataclass(frozen=True)
class Made:
    """A job or a workstation as it was submitted."""

    kind: Kind | Desk
    gpus: int
    retries: int = 0
    """Automatic ones, for its own failures."""
    before: tuple[str, ...] = ()
    """The steps of its pipeline before it."""
    pipeline: str | None = None

    @property
    def is_desk(self) -> bool:
        return self.kind in DESKS

    @property
    def lifetime_seconds(self) -> int | None:
        return LIFETIME_SECONDS if self.kind == "short" else None

    def fails(self, attempt: int) -> bool:
        """Whether this attempt does, where it comes to its end."""
        return self.kind == "failing" or (self.kind == "flaky" and attempt % 2 == 1)

    def command(self, ledger: str, seconds: float) -> list[str]:
        """What it runs."""
        script = f"{_BEGIN}{_WORK[self.kind]}{_END}exit {_CODE.get(self.kind, '0')}\n"
        return ["sh", "-c", script, ledger, f"{seconds:.2f}"]
