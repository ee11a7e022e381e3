"""A job alone waits for nothing; under load rounds are spaced, so that what comes meanwhile makes one batch."""

import asyncio
import time

import pytest

from shared.runtime.pace import SPACING_SECONDS, Pace


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_after_a_round_of_one_or_two_the_next_begins_at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        raise AssertionError(f"it waited {seconds} s")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pace = Pace()
    pace.round_of(500)
    pace.round_of(count)
    await pace.next()


async def test_after_a_round_of_more_the_next_begins_a_while_after_it() -> None:
    pace = Pace()
    began = time.monotonic()
    pace.round_of(3)
    await pace.next()
    assert time.monotonic() - began >= SPACING_SECONDS


async def test_a_round_that_took_longer_than_that_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace()
    pace.round_of(3)
    later = time.monotonic() + SPACING_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    monkeypatch.setattr(asyncio, "sleep", None)
    await pace.next()
