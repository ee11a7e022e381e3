"""Slurm's job states and flags, each with what it means for a job. Total over squeue(1) and sacct(1), 22.05 to 25.05.

A word that is not here is no information: the job keeps its last state, and never ends by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shared.lifecycle.reasons import EndReason


class Means(StrEnum):
    """What becomes of a job in a state."""

    WAITS = "waits"
    """Not started, or to be started again."""
    HELD = "held"
    """Not started, and nobody will start it before somebody has acted."""
    RUNS = "runs"
    SUSPENDED = "suspended"
    """It keeps its GPUs and does nothing."""
    ENDED = "ended"
    """It will not run again, as long as the controller says so and not accounting alone."""
    ELSEWHERE = "elsewhere"
    """A sibling cluster has it: nothing is known here."""


@dataclass(frozen=True, slots=True)
class StateRow:
    """`reason` is the end reason where code and signal do not say it."""

    means: Means
    reason: EndReason | None = None


_WAITS, _HELD, _RUNS = StateRow(Means.WAITS), StateRow(Means.HELD), StateRow(Means.RUNS)

STATES: Final[Mapping[str, StateRow]] = MappingProxyType(
    {
        "PENDING": _WAITS,
        "CONFIGURING": _WAITS,
        "POWER_UP_NODE": _WAITS,
        "REQUEUE_FED": _WAITS,
        "REQUEUED": _WAITS,
        "REQUEUE_HOLD": _HELD,
        "RESV_DEL_HOLD": _HELD,
        "SPECIAL_EXIT": _HELD,
        "RUNNING": _RUNS,
        "COMPLETING": _RUNS,
        "STAGE_OUT": _RUNS,
        "SIGNALING": _RUNS,
        "RESIZING": _RUNS,
        "UPDATE_DB": _RUNS,
        "EXPEDITING": _RUNS,
        "SUSPENDED": StateRow(Means.SUSPENDED),
        "STOPPED": StateRow(Means.SUSPENDED),
        "COMPLETED": StateRow(Means.ENDED),
        "FAILED": StateRow(Means.ENDED),
        "CANCELLED": StateRow(Means.ENDED, EndReason.STOPPED_AT_BACKEND),
        "TIMEOUT": StateRow(Means.ENDED, EndReason.TIME_LIMIT),
        "DEADLINE": StateRow(Means.ENDED, EndReason.TIME_LIMIT),
        "OUT_OF_MEMORY": StateRow(Means.ENDED, EndReason.OUT_OF_MEMORY),
        "NODE_FAIL": StateRow(Means.ENDED, EndReason.NODE_LOST),
        "BOOT_FAIL": StateRow(Means.ENDED, EndReason.NODE_LOST),
        "PREEMPTED": StateRow(Means.ENDED, EndReason.PREEMPTED),
        "LAUNCH_FAILED": StateRow(Means.ENDED, EndReason.CONFIGURATION),
        "RECONFIG_FAIL": StateRow(Means.ENDED, EndReason.NODE_LOST),
        "REVOKED": StateRow(Means.ELSEWHERE),
    }
)


def state_row(word: str) -> StateRow | None:
    """The row of a state as Slurm prints it: `CANCELLED by 1000`, cut columns (`OUT_OF_ME+`) and blanks too.

    None for what is unknown, and for a cut word that several could be.
    """
    first = (word.split() or [""])[0].upper()
    if not first.endswith("+"):
        return STATES.get(first)
    whole = [row for name, row in STATES.items() if name.startswith(first[:-1])] if len(first) > 1 else []
    return whole[0] if len(whole) == 1 else None
