"""The next attempt of a job, by itself or by hand: it passes every gate again, and nothing of the last one stays."""

from datetime import timedelta

from shared.lifecycle.inputs import Delete, Pause, Resume
from shared.lifecycle.record import JobRecord, Retries
from tests.integration.gatekeeper.world import World

NOTHING = (1, False, False)
SECOND = (2, True, True)


async def _pauses(world: World, job: str) -> JobRecord:
    """It is asked to pause, saves its state, and is let go."""
    await world.happens(job, Pause(actor="rin", at=world.clock.now()))
    return await world.happens(job, *world.ended(job))


def _resume(world: World) -> Resume:
    return Resume(actor="rin", at=world.clock.now())


async def test_an_automatic_retry_waits_for_its_cooldown_and_goes_on_by_itself_at_that_instant(world: World) -> None:
    [job] = await world.submit(gpus=8, retries=Retries(budget=1))
    await world.api_applies()
    opens_at = world.clock.now() + timedelta(seconds=15)
    await world.happens(job, *world.launched(job), *world.ended(job, code=3))
    assert (world.records[job].state, world.records[job].attempt) == ("QUEUED", 2)
    assert await world.reservations(job) == [NOTHING], "what waits for an instant holds nothing"
    assert await world.held() == {
        job: "cooldown: attempt 1 failed; attempt 2 may start from 2026-11-30 12:00:15 UTC on"
    }
    gate = world.records[job].gate
    assert gate is not None
    assert (gate.opens_at, gate.lifted_by) == (opens_at, "time")
    world.clock.set(opens_at - timedelta(milliseconds=1))
    await world.gatekeeper.tick()
    assert await world.admitted() == []
    world.clock.set(opens_at)
    await world.gatekeeper.tick()
    assert await world.admitted() == [job]
    assert await world.reservations(job) == [NOTHING, SECOND]


async def test_others_pass_whoever_cools_down_and_it_stands_in_line_again_afterwards(world: World) -> None:
    [job] = await world.submit(gpus=8, retries=Retries(budget=1))
    await world.api_applies()
    await world.happens(job, *world.launched(job), *world.ended(job, code=3))
    await world.api_applies()
    [other] = await world.submit(gpus=8)
    assert await world.admitted() == [other]
    world.clock.advance(timedelta(seconds=15))
    await world.cluster()
    await world.gatekeeper.tick()
    assert list(await world.held()) == [job]
    await world.ends(other)
    assert await world.admitted() == [job]


async def test_a_pause_lets_go_of_everything_and_a_resume_passes_every_gate_again(world: World) -> None:
    [job] = await world.submit(gpus=8)
    [rival] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, *world.launched(job))
    assert (await _pauses(world, job)).state == "PAUSED"
    assert await world.reservations(job) == [NOTHING]
    assert await world.admitted() == [rival]
    await world.happens(job, _resume(world))
    held = await world.held()
    assert held == {job: "capacity: needs 8 GPUs; cluster local has 0 of 8 free of coretype local"}
    await world.happens(job, world.hold())
    await world.ends(rival)
    assert await world.admitted() == [], "a hold is a gate of the second attempt as well"
    await world.happens(job, world.release())
    assert await world.admitted() == [job]
    assert await world.reservations(job) == [NOTHING, SECOND]
    await world.ends(job)
    assert await world.reservations(job) == [NOTHING, (2, False, False)]
    assert await world.used() == (0, 0)


async def test_a_pause_that_crosses_an_admission_ends_its_reservation(world: World) -> None:
    [job] = await world.submit(gpus=8)
    world.put(job, Pause(actor="rin", at=world.clock.now()))
    [admitted] = await world.facts()
    world.put(job, admitted)
    assert world.records[job].state == "PAUSED"
    await world.hears(job)
    assert await world.used() == (0, 0)
    await world.happens(job, _resume(world))
    assert await world.admitted() == [job]
    assert await world.reservations(job) == [NOTHING, SECOND]


async def test_a_resume_that_overtakes_its_pause_ends_what_was_before(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, *world.launched(job))
    world.put(job, Pause(actor="rin", at=world.clock.now()))
    paused = world.event(world.put(job, *world.ended(job)))
    world.put(job, _resume(world))
    await world.hears(job)
    await world.gatekeeper.on_events([paused])
    assert await world.admitted() == [job]
    assert await world.reservations(job) == [NOTHING, SECOND]


async def test_whoever_waits_and_is_paused_leaves_the_line(world: World) -> None:
    await world.submit(gpus=8)
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, Pause(actor="rin", at=world.clock.now()))
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    await world.happens(job, _resume(world))
    assert list(await world.held()) == [job]


async def test_a_deleted_job_leaves_nothing_that_is_open(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.ends(job)
    await world.happens(job, Delete(actor="rin", at=world.clock.now()))
    assert world.records[job].deleted
    assert await world.used() == (0, 0)
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    assert await world.db.fetchval("SELECT count(*) FROM reservations WHERE slot_ended_at IS NULL") == 0
    assert await world.db.fetchval("SELECT ended_at IS NOT NULL FROM attempts WHERE job = $1", job), "to be purged"
