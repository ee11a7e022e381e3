"""When a command is warned, asked to end and killed: by a stop, a pause or its time limit. Moments are arguments.

Moments are milliseconds of a clock that nobody sets. It goes on while the supervisor is stopped or starved, so that a
limit that passed meanwhile is reached at once; it stands still while the whole machine sleeps, as the command does.
"""

from __future__ import annotations

from enum import Enum

_KILL_AGAIN_MS = 100


class Due(Enum):
    """What is to be done now."""

    WARN = "warn"
    LIMIT = "limit"
    KILL = "kill"


class _Asked(Enum):
    NOTHING = 0
    PAUSE = 1
    STOP = 2


class Deadlines:
    """Of one command. A stop or pause that came before the limit goes its own way: the limit then means nothing. One
    that came after it only shortens what is left. A stop takes over from a pause, and a pause never from a stop."""

    def __init__(
        self, started_ms: int, limit_seconds: float | None, limit_grace_ms: int, warning_seconds: float | None
    ) -> None:
        self.over_limit = False
        self.limit_grace_ms = limit_grace_ms
        self._asked = _Asked.NOTHING
        self._kill_ms: int | None = None
        self._limit_ms = self._warn_ms = None
        if limit_seconds is not None:
            self._limit_ms = started_ms + int(limit_seconds * 1000)
            if warning_seconds is not None:
                # At the start it would kill a command that is not yet prepared for it.
                ahead = warning_seconds if warning_seconds < limit_seconds else limit_seconds / 2
                self._warn_ms = self._limit_ms - int(ahead * 1000)

    def ask(self, now_ms: int, grace_ms: int, *, pausing: bool) -> bool:
        """Somebody wants the end within this grace; whether the command is to be told."""
        wanted = _Asked.PAUSE if pausing else _Asked.STOP
        if pausing and (self.over_limit or self._asked is _Asked.STOP):
            return False
        deadline = now_ms + grace_ms
        if self._kill_ms is not None and (self.over_limit or self._asked is wanted):
            deadline = min(deadline, self._kill_ms)
        self._asked, self._kill_ms = wanted, deadline
        return True

    def due(self, now_ms: int) -> Due | None:
        """What is to be done now. A warning and the limit come once, a kill until nothing is left."""
        if self._kill_ms is not None:
            if now_ms < self._kill_ms:
                return None
            self._kill_ms = now_ms + _KILL_AGAIN_MS
            return Due.KILL
        if self._limit_ms is not None and now_ms >= self._limit_ms:
            self.over_limit = True
            self._kill_ms = now_ms + self.limit_grace_ms
            return Due.LIMIT
        if self._warn_ms is not None and now_ms >= self._warn_ms:
            self._warn_ms = None
            return Due.WARN
        return None

    def next_ms(self) -> int | None:
        """When something is due next; None: never, as it is now."""
        if self._kill_ms is not None:
            return self._kill_ms
        return self._limit_ms if self._warn_ms is None else self._warn_ms
