"""Launches go to the cluster that their attempt was admitted to, and to no other."""

from tests.integration.launcher.world import World


async def test_a_launch_waits_for_a_cluster_that_the_file_does_not_name_and_says_so(world: World) -> None:
    world.cluster = "gone"
    waiting, stopped = await world.job(), await world.job()
    world.cluster = None
    here = await world.job()
    launcher = world.launcher()
    await launcher.launch(waiting.again(), stopped.again(), here.again())
    await launcher.end(stopped.stop())
    assert await launcher.store.strand(["local"]) == [("gone", 2)]
    for job, state in ((waiting, "intent"), (stopped, "revoking")):
        row = await world.row(job)
        assert (row["state"], row["waits_for"]) == (state, "TIDEGATE_CLUSTERS names no cluster gone")
    assert (await world.row(here))["state"] == "submitted"
    assert await launcher.store.strand(["local"]) == [], "it was told"
    assert await launcher.store.strand(["local", "gone"]) == []
    await world.until_ended(here)
