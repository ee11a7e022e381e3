"""A supervisor is killed only when it was asked for the end before and had time for it: it may have gone on by then."""

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from shared.backends.local import ending
from shared.backends.local.messages import KillKind, StopAnswer
from shared.backends.local.records import ClaimRecord, ProcessIdentity
from shared.backends.local.sightings import LocalState, Seen
from shared.backends.local.supervisor import LEAST_PATIENCE_SECONDS

NAME = "tidegate.j1.a1.s1"
CLAIM = ClaimRecord(NAME, ProcessIdentity(os.getpid(), 1, "boot"), datetime(2026, 11, 30, tzinfo=UTC))
ALIVE = Seen(NAME, "tidegate", "j1", 1, LocalState.RUNNING, None, CLAIM)


@dataclass
class Backend:
    """What was done to a supervisor that never ends."""

    asked: list[float] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)

    def stop(self, *_: object) -> StopAnswer:
        """Asking takes a while, as it does on a busy machine."""
        time.sleep(LEAST_PATIENCE_SECONDS)
        self.asked.append(time.monotonic())
        return StopAnswer.ASKED

    def kill(self, _root: str, _seen: Seen) -> None:
        """It was killed."""
        self.killed.append(time.monotonic())


def test_a_supervisor_is_asked_first_and_has_its_time_however_short_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = Backend()
    monkeypatch.setattr(ending, "look", lambda *_: ALIVE)
    monkeypatch.setattr(ending, "stop", backend.stop)
    monkeypatch.setattr(ending, "_kill_supervisor", backend.kill)
    answer = ending.kill("root", NAME, timeout_seconds=2.5 * LEAST_PATIENCE_SECONDS)
    assert answer.kind is KillKind.UNCLEAR
    assert len(backend.asked) == 1
    assert backend.killed, "it is taken for broken"
    assert backend.killed[0] - backend.asked[0] >= LEAST_PATIENCE_SECONDS
