"""Silence is a cluster's own only where it could have been heard."""

from datetime import UTC, datetime, timedelta

from services.gatekeeper.hearing import Hearing
from shared.runtime.clock import FixedClock


def test_silence_says_nothing_while_nobody_could_be_heard_nor_right_after() -> None:
    clock = FixedClock(datetime(2026, 11, 30, tzinfo=UTC))
    connected = [True]
    hearing = Hearing(lambda: connected[0], clock, timedelta(seconds=30))

    def after(seconds: float, *, there: bool) -> bool:
        connected[0] = there
        clock.advance(timedelta(seconds=seconds))
        return hearing.hears()

    assert not hearing.hears(), "it has just begun to listen"
    assert not after(30, there=True)
    assert after(1, there=True)
    assert not after(1, there=False)
    assert not after(60, there=False)
    assert not after(30, there=True)
    assert after(1, there=True)
