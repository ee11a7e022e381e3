"""A backend for made-up histories: one submission that waits, runs, is requeued, ends, or is gone without a witness."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from shared.lifecycle import facts as f
from shared.lifecycle.reasons import EndReason

T = TypeVar("T")


MOST_REQUEUES = 3


class Choices(Protocol):
    """Where decisions come from; the first option is the plain one."""

    def pick(self, options: Sequence[T]) -> T: ...

    def chance(self, percent: int) -> bool: ...


@dataclass
class Period:
    """One segment as the backend knows it."""

    key: f.SegmentKey
    started_at: datetime | None = None
    suspended_since: datetime | None = None
    requeued_at: datetime | None = None
    end: dict[str, Any] | None = None


@dataclass
class Backend:
    created: datetime
    claimed: bool = False
    shown: bool = True
    last_seen_at: datetime | None = None
    periods: list[Period] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin(self.created)

    @property
    def over(self) -> bool:
        """Nothing of it runs or will."""
        return self.periods[-1].end is not None or not self.shown

    def segments(self) -> list[f.SegmentKey]:
        return [period.key for period in self.periods]

    def move(self, choices: Choices, now: datetime) -> None:
        """It goes on by itself."""
        period = self.periods[-1]
        if self.over:
            return
        if period.started_at is None:
            period.started_at = now
            self.claimed = True
            return
        match choices.pick(("end", "end", "requeue", "suspend", "vanish")):
            case "end":
                self._end(now, choices.pick((0, 0, 3)), stop_recorded=choices.pick((False, False, None)))
            case "requeue" if len(self.periods) <= MOST_REQUEUES:
                period.requeued_at = now
                self._begin(now)
            case "suspend":
                period.suspended_since = None if period.suspended_since else now
            case "vanish":
                self.shown = False

    def finish(self, now: datetime) -> None:
        """What still waits starts, what runs ends well."""
        if self.over:
            return
        if self.periods[-1].started_at is None:
            self.claimed = True
            self.periods[-1].started_at = now
        else:
            self._end(now, 0, stop_recorded=False)

    def stop(self, choices: Choices, now: datetime) -> None:
        """The launcher ends it; a command that ended by itself in that moment keeps its own end."""
        period = self.periods[-1]
        if period.started_at is None:
            if choices.chance(50):
                self._end(now, None, stop_recorded=True, reason=EndReason.STOPPED_AT_BACKEND)
            else:
                self.shown = False
        elif choices.chance(25):
            self._end(now, 0, stop_recorded=False)
        else:
            self._end(now, None, stop_recorded=choices.pick((True, None)), signal=15)

    def sightings(self, choices: Choices, now: datetime) -> Iterator[tuple[type[f.FactBase], dict[str, Any]]]:
        """What the watcher tells of it: ends always, what came before them maybe."""
        self.last_seen_at = now
        for period in self.periods:
            said: dict[str, Any] = {"segment": period.key}
            over = period.end is not None or period.requeued_at is not None
            if choices.chance(50):
                yield f.SeenPending, said | {"raw_state": "PENDING"}
            if period.started_at is not None and (not over or choices.chance(50)):
                running = {"started_at": period.started_at, "suspended_since": period.suspended_since}
                yield f.SeenRunning, said | running | {"raw_state": "RUNNING"}
            if period.requeued_at is not None and (period is not self.periods[-1] or choices.chance(80)):
                requeued = {"started_at": period.started_at, "ended_at": period.requeued_at}
                yield f.SegmentRequeued, said | requeued | {"raw_reason": "preempted"}
            if period.end is not None:
                yield f.Exited, said | {"started_at": period.started_at} | period.end

    def _begin(self, now: datetime) -> None:
        restart = len(self.periods)
        self.periods.append(Period(f.SegmentKey(submission="s1", restart=restart, created_at=now)))

    def _end(self, now: datetime, code: int | None, **more: Any) -> None:
        self.periods[-1].end = {"code": code, "ended_at": now, "raw_state": "ENDED"} | more
