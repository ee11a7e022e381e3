"""The epoch that a service reads at its start, and how it gets back into step after a restore."""

import orjson

from shared.runtime.service import Service
from tests.integration.runtime.stores import Stores, a_message, enqueue, eventually, running
from tests.patience import PATIENCE_SECONDS


async def restored(stores: Stores, *services: str, epoch: int = 2) -> None:
    """What a restore leaves in the slices of these services."""
    for service in services:
        await stores.rows(f"UPDATE {service}.standing SET epoch = {epoch}, restoring = true, backup_at = now()")


async def in_step(*services: Service) -> None:
    async def all_of_them() -> bool:
        return not any(service.standing.restoring for service in services)

    await eventually(all_of_them, "the end of the restore")


async def test_is_known_before_the_start_work_and_told_to_whoever_asks(stores: Stores) -> None:
    await restored(stores, "watcher", epoch=5)
    api, watcher = stores.service("api"), stores.service("watcher", restores_itself=True)
    seen: list[int] = []

    @watcher.on_start
    async def look() -> None:
        seen.append(watcher.standing.epoch)

    async with running(watcher, api):
        told = orjson.loads(await api.call("watcher", "standing", b"", PATIENCE_SECONDS))
        assert told == {"epoch": 5, "restoring": True, "unsent": 0}
        assert watcher.standing.backup_at is not None
        assert not api.standing.restoring
    assert seen == [5]


async def test_says_how_many_messages_are_not_sent(stores: Stores) -> None:
    api, gatekeeper = stores.service("api"), stores.service("gatekeeper")
    async with running(gatekeeper, api):
        await enqueue(gatekeeper, [a_message("denied", key="a"), a_message("denied too", key="b")])
        assert orjson.loads(await api.call("gatekeeper", "standing", b"", PATIENCE_SECONDS))["unsent"] == 2


async def test_services_follow_api_in_the_same_epoch_and_only_then(stores: Stores) -> None:
    await restored(stores, "api", "gatekeeper", "launcher")
    await restored(stores, "launcher", epoch=3)
    api = stores.service("api", restores_itself=True)
    gatekeeper, launcher = stores.service("gatekeeper"), stores.service("launcher")
    async with running(api, gatekeeper, launcher):
        assert gatekeeper.standing.restoring
        await api.mark_in_step()
        await in_step(api, gatekeeper)
        assert gatekeeper.standing.epoch == 2
        await launcher._standing.follow()
        assert launcher.standing.restoring, "it stands in another epoch"
    assert await stores.rows("SELECT 1 FROM gatekeeper.standing WHERE NOT restoring")


async def test_what_one_replica_marks_the_others_see(stores: Stores) -> None:
    await restored(stores, "api")
    one, other = stores.service("api", restores_itself=True), stores.service("api", restores_itself=True)
    async with running(one, other):
        assert other.standing.restoring
        await one.mark_in_step()
        await in_step(one, other)
