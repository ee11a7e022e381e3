"""The seal: the launcher's vote waits for the end, and a record that is not sealed by both votes does not end."""

import asyncio
from collections.abc import Callable

import pytest

from services.launcher import ending
from services.launcher.endings import Sealable
from shared.backends.local.sightings import LocalState
from shared.lifecycle.picture import Picture
from shared.lifecycle.states import TERMINAL
from tests.integration.launcher.world import World

STUBBORN = ("sh", "-c", "trap '' TERM; touch ready; while true; do sleep 0.05; done")


async def a_stop_of_a_command_that_does_not_heed_it(world: World) -> list[str]:
    """The launcher looks once after the stop; what still lives although the attempt is sealed."""
    job = await world.job(*STUBBORN)
    launcher = world.launcher()
    await launcher.launch(job.again())
    while not (world.backend.root / job.directory / "ready").exists():  # noqa: ASYNC110 # the job's own sign
        await asyncio.sleep(0.01)
    await world.facts(job)
    await launcher.end(job.stop(grace_seconds=3600))
    told = [fact.kind for fact in await world.facts(job)]
    states = {seen.state for seen in world.backend.observer.observe().submissions if seen.job == job.id}
    lives = LocalState.RUNNING in states
    return ["the attempt is sealed and its command lives"] if "launcher_sealed" in told and lives else []


async def a_stop_while_the_command_runs(world: World, *, before: Callable[[], None] = lambda: None) -> list[str]:
    """What the job's record says while the launcher's vote is not there."""
    job = await world.job(*STUBBORN)
    await world.launcher().launch(job.again())
    await world.facts(job)
    before()
    job.stop(grace_seconds=3600)
    return [f"the job is {job.record.state} and its command lives"] if job.record.state in TERMINAL else []


async def test_with_the_seal_nothing_of_a_sealed_attempt_lives(launchers: World) -> None:
    assert await a_stop_of_a_command_that_does_not_heed_it(launchers) == []
    assert await a_stop_while_the_command_runs(launchers) == []


async def test_without_awaiting_the_end_a_sealed_attempt_lives_on(
    launchers: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "next_step", lambda row, holders, now: Sealable(ran=bool(holders)))
    found = await a_stop_of_a_command_that_does_not_heed_it(launchers)
    assert found == ["the attempt is sealed and its command lives"]


async def test_without_the_votes_a_job_is_over_while_its_command_runs(
    launchers: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_vote_is_enough() -> None:
        monkeypatch.setattr(Picture, "sealed", property(lambda picture: picture.stager_voted))

    found = await a_stop_while_the_command_runs(launchers, before=one_vote_is_enough)
    assert found == ["the job is STOPPED and its command lives"]
