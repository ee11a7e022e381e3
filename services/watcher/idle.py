"""Whether a workstation is in use, and when it is to be suspended for not being used. Pure.

All of it is judged at the moment at which its probes looked last, not at the watcher's own: what nobody has looked at
since is no evidence of idleness, however late it is.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shared.backends.local.activity import Activity

STALE_AFTER: Final = timedelta(seconds=60)
"""Probes look every 5 s. Of what they have not looked at for so long nothing is known."""


@dataclass(frozen=True, slots=True)
class Limits:
    """It is suspended once it was idle for `idle`, not before `snoozed_until`; its user is told `warning` before."""

    idle: timedelta
    warning: timedelta
    snoozed_until: datetime | None = None

    @classmethod
    def of(cls, idle_seconds: int, warning_seconds: float, snoozed_until: datetime | None) -> "Limits":
        """A warning takes at most half of the limit."""
        warning = min(timedelta(seconds=warning_seconds), timedelta(seconds=idle_seconds) / 2)
        return cls(timedelta(seconds=idle_seconds), warning, snoozed_until)


@dataclass(frozen=True, slots=True)
class Announced:
    """What was told of it last: idle since when, and when it is suspended for that."""

    since: datetime
    suspends_at: datetime


@dataclass(frozen=True, slots=True)
class InUse:
    """It is in use, or nothing is known: nobody suspends it for being idle, and what was announced is so no more."""


@dataclass(frozen=True, slots=True)
class Idle:
    """It is to be announced, or was, that it is idle; `is_due`: it is to be suspended now."""

    since: datetime
    suspends_at: datetime
    is_due: bool


def judge(activity: Activity, limits: Limits, announced: Announced | None, now: datetime) -> InUse | Idle:
    """What the probes' record says now. An instant that was announced is kept to, unless it is put off; else it lies a
    whole warning ahead of `now`, also where nobody looked for long."""
    last = activity.last
    if last is None or now - activity.at > STALE_AFTER:
        return InUse()
    if announced is not None and announced.since == last:
        suspends_at = announced.suspends_at
    elif activity.at - last >= limits.idle - limits.warning:
        suspends_at = max(last + limits.idle, now + limits.warning)
    else:
        return InUse()
    if limits.snoozed_until is not None:
        suspends_at = max(suspends_at, limits.snoozed_until)
    return Idle(last, suspends_at, activity.at >= suspends_at)


def shown(activity: Activity) -> tuple[str, ...]:
    """What each probe saw, in words."""
    return tuple(
        f"{name}: {'not active yet' if last is None else f'active until {last:%H:%M:%S} UTC'}"
        for name, last in sorted(activity.probes.items())
    )
