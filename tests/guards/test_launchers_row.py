"""The launcher's row: an answer is written only under the lease that asked for it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.launcher.domain import State
from services.launcher.outcomes import Later, apply
from services.launcher.store import Store
from shared.runtime.clock import SystemClock
from tests.integration.launcher.world import World, kinds


async def a_launcher_that_was_frozen_over_its_lease(
    world: World, *, before_it_writes: Callable[[], None] = lambda: None
) -> list[str]:
    """It leased the row and got no answer in time; another took over and launched; now it writes what it knows."""
    job = await world.job()
    frozen, other = world.launcher("frozen"), world.launcher("other")
    await frozen.handle(job.again())
    now = SystemClock().now()
    leased = await frozen.store.claim_launches(1, "the lease of the frozen one", now - timedelta(seconds=1), now)
    await other.store.take_over(now, at_start=False)
    await other.launching.once()
    assert kinds(await world.facts(job)) == ["accepted"]

    before_it_writes()
    await frozen.store.record_launches(
        [apply(row, Later("the host gave no answer", absent=False), now) for row in leased],
        "the lease of the frozen one",
    )
    row = await world.row(job)
    found = [] if row["state"] == "submitted" else [f"what was told as accepted is {row['state']} again"]
    await world.until_ended(job)
    return found


async def test_with_the_rows_lease_a_late_answer_is_thrown_away(launchers: World) -> None:
    assert await a_launcher_that_was_frozen_over_its_lease(launchers) == []


async def test_without_it_a_late_answer_takes_the_launch_back(
    launchers: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Store._record

    async def written_by_anybody(store: Store, rows: Any, decided: Any, told_in: State, told: Any) -> Any:
        return await whole(store, rows, lambda row, held, version: row, told_in, told)

    found = await a_launcher_that_was_frozen_over_its_lease(
        launchers, before_it_writes=lambda: monkeypatch.setattr(Store, "_record", written_by_anybody)
    )
    assert found == ["what was told as accepted is intent again"]
