"""A pause lets the command save its state: by its own signal, within its own grace, and a stop may still follow."""

import signal
from datetime import timedelta

from services.launcher.domain import State
from services.launcher.endings import asked
from shared.backends.local.records import ExitRecord
from shared.lifecycle.reasons import EndReason
from tests.integration.launcher.test_ending import running, vote
from tests.integration.launcher.world import World

SAVES = "trap 'echo saved >> ledger; exit 0' USR1; touch ready; while true; do sleep 0.02; done"
GOES_ON = "trap 'touch told' USR1; trap 'exit 7' TERM; touch ready; while true; do sleep 0.02; done"
ON_USR1 = {"checkpoint_signal": "USR1", "checkpoint_grace_seconds": 600}


def recorded_end(world: World) -> ExitRecord:
    """How the one job ended, by the backend's record."""
    (seen,) = world.backend.observer.observe().submissions
    assert seen.exit is not None
    return seen.exit


async def test_a_pause_sends_the_checkpoint_signal_and_waits_for_the_state_to_be_saved(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, SAVES, **ON_USR1)
    await launcher.end(job.pause())
    assert vote(await world.until_sealed(launcher, job)).ran
    assert world.ledger(job) == ["saved"]
    assert recorded_end(world).stop_seen_at is not None


async def test_a_stop_after_a_pause_sends_sigterm_though_its_grace_is_longer(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, GOES_ON, **ON_USR1)
    await launcher.end(job.pause())
    await world.until_written(job, "told")
    await launcher.end(job.stop(grace_seconds=3600))
    await world.until_sealed(launcher, job)
    assert recorded_end(world).code == 7


async def test_a_launcher_that_is_started_again_asks_with_the_same_signal(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, SAVES, **ON_USR1)
    await launcher.handle(job.pause())
    again = world.launcher()
    await again.start()
    await world.until_sealed(again, job)
    assert world.ledger(job) == ["saved"]


async def test_a_stop_that_comes_while_the_pause_is_asked_for_is_asked_for_next(world: World) -> None:
    launcher = world.launcher()
    job = await running(world, launcher, GOES_ON, **ON_USR1)
    await launcher.handle(job.pause())
    now = world.clock.now()
    (mine,) = await launcher.store.claim_endings(1, now + timedelta(seconds=15), now)
    await launcher.handle(job.stop(grace_seconds=3600))
    await launcher.store.record_endings([asked(mine, 600, now)])
    row = await world.row(job)
    assert (row["state"], row["stop_signal"], row["pausing"]) == (State.REVOKING, signal.SIGTERM, False)
    assert (row["grace_seconds"], row["stop_asked_at"]) == (3600, None)
    await world.until_sealed(launcher, job)
    assert recorded_end(world).code == 7


async def test_a_job_without_gpus_paused_before_its_launch_leaves_nothing_to_end(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.end(job.pause())
    assert not vote(await world.facts(job)).ran
    assert job.record.end_reason is EndReason.PAUSED_BY_USER
