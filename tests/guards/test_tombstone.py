"""The tombstone: a job whose end was heard of first takes nothing when its earlier events come."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from services.gatekeeper import store
from services.gatekeeper.store import Store
from shared.lifecycle.record import JobRecord
from tests.integration.gatekeeper.world import World


async def an_end_that_comes_first(world: World) -> list[str]:
    """A job was submitted and stopped while the gatekeeper was away; the events reach it in the wrong order."""
    job = world.a_job(gpus=8)
    submitted = world.event(world.records[job])
    await world.happens(job, world.stop())
    await world.gatekeeper.on_events([submitted])
    slots, gpus = await world.used()
    return [f"{gpus} GPUs are reserved for a job that is over"] if slots else []


async def test_with_the_tombstone_nothing_is_reserved_for_what_is_over(gatekeeper: World) -> None:
    assert await an_end_that_comes_first(gatekeeper) == []


async def test_without_the_tombstone_gpus_are_reserved_for_ever(
    gatekeeper: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Store.heard

    async def forgets_what_is_over(self: Store, records: Sequence[JobRecord], now: datetime) -> None:
        await whole(self, [record for record in records if store._moving(record)], now)

    monkeypatch.setattr(Store, "heard", forgets_what_is_over)
    assert await an_end_that_comes_first(gatekeeper) == ["8 GPUs are reserved for a job that is over"]
