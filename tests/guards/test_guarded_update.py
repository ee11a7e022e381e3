"""The guarded update: what was decided from a row is written only while the row is as it was read."""

from typing import Any

import pytest

from services.launcher import statements
from services.launcher.store import Store
from shared.lifecycle.facts import InputValid
from tests.integration.launcher.world import World

GUARD = "AND launches.xmin::text::bigint = held.guard"


async def a_handler_that_was_frozen_between_read_and_write(world: World) -> list[str]:
    """It has read the row; another replica handles the stop and commits it; now it writes what an older event asked."""
    job = await world.job()
    rival = world.launcher("rival")
    await rival.handle(job.again())
    older = job.apply(InputValid(**job.head("stager")))
    assert older is not None
    stopped = job.stop()

    class Frozen(Store):
        async def read_jobs(self, jobs: Any) -> Any:
            read = await super().read_jobs(jobs)
            await rival.handle(stopped)
            return read

    await world.launcher("frozen", store=Frozen).handle(older)
    row = await world.row(job)
    return [] if row["state"] == "revoking" else [f"the stop is lost: the row says {row['state']}"]


async def test_with_the_guard_a_stop_is_not_overwritten(launchers: World) -> None:
    assert await a_handler_that_was_frozen_between_read_and_write(launchers) == []


async def test_without_the_guard_the_stop_is_lost(launchers: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert GUARD in statements.APPLY
    monkeypatch.setattr(statements, "APPLY", statements.APPLY.replace(GUARD, ""))
    found = await a_handler_that_was_frozen_between_read_and_write(launchers)
    assert found == ["the stop is lost: the row says intent"]
