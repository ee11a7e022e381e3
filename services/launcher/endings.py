"""What remains to be done until an attempt is sealed, from its claims and what the backend shows of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from signal import SIGTERM
from typing import Final

from services.launcher.backend import Holder, Where
from services.launcher.domain import Launch, State
from services.launcher.outcomes import pause_seconds

_MARGIN_SECONDS: Final = 5.0
"""After grace and this much more, whoever was to end the command is taken for broken."""


@dataclass(frozen=True, slots=True)
class Sealable:
    """Nothing runs and nothing can start; `gone` are to be swept first, as nobody saw them end."""

    ran: bool
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask these to end, by this signal, within `grace_seconds`."""

    submissions: tuple[str, ...]
    grace_seconds: float
    signal: int = SIGTERM
    pausing: bool = False


@dataclass(frozen=True, slots=True)
class KillNow:
    """These had their time, and what was to end them does not."""

    submissions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """They have been asked; look again later."""


Step = Sealable | AskToStop | KillNow | Wait


def next_step(row: Launch, holders: Sequence[Holder], now: datetime) -> Step:
    """What to do about a revoked attempt whose claims were read after `revoked` was there."""
    alive = tuple(holder.submission for holder in holders if _is_alive(holder))
    if not alive:
        gone = tuple(holder.submission for holder in holders if not _has_ended(holder))
        return Sealable(ran=any(_ran(holder) for holder in holders), gone=gone)
    grace = row.grace_seconds or 0.0
    if row.stop_asked_at is None or row.stop_asked_grace is None or grace < row.stop_asked_grace:
        return AskToStop(alive, grace, SIGTERM if row.stop_signal is None else row.stop_signal, row.pausing)
    if now >= row.stop_asked_at + timedelta(seconds=row.stop_asked_grace + _MARGIN_SECONDS):
        return KillNow(alive)
    return Wait()


def asked(row: Launch, grace_seconds: float, now: datetime) -> Launch:
    """The row once the backend was asked for the end; it looks again soon, as most commands end at once."""
    return waiting(replace(row, stop_asked_at=now, stop_asked_grace=grace_seconds, tries=0), now)


def waiting(row: Launch, now: datetime, why: str | None = None) -> Launch:
    """The row to be looked at later; the event that tells of the exit wakes it earlier."""
    pause = timedelta(seconds=pause_seconds(row.tries))
    return replace(row, next_at=now + pause, tries=row.tries + 1, waits_for=why, owner=None)


def sealed(row: Launch, *, ran: bool, now: datetime) -> Launch:
    """The row with the launcher's vote."""
    return replace(row, state=State.SEALED, ran=ran, sealed_at=now, next_at=now, owner=None, waits_for=None)


def _is_alive(holder: Holder) -> bool:
    return holder.shown is not None and holder.shown.where is Where.ALIVE


def _has_ended(holder: Holder) -> bool:
    return holder.shown is not None and holder.shown.where is Where.ENDED


def _ran(holder: Holder) -> bool:
    """A claim of which nothing is known counts as run."""
    return holder.shown is None or holder.shown.ran
