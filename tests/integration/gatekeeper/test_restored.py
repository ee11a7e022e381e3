"""The database was taken back in time: nothing is admitted before what runs was seen, and what runs is booked."""

from dataclasses import replace

from services.gatekeeper.restored import Restored
from shared.lifecycle import facts as f
from shared.lifecycle.record import JobRecord
from shared.runtime.standing import Standing
from tests.integration.gatekeeper.world import World


def restored(world: World) -> None:
    world.standing = replace(world.standing, epoch=2, restoring=True)


def in_step(world: World) -> None:
    world.standing = replace(world.standing, restoring=False)


def raised(record: JobRecord) -> JobRecord:
    """The version that `api` gives it at its start."""
    return record.model_copy(update={"epoch": 2, "seq": record.seq + 1})


async def test_admits_nothing_while_restoring_and_says_so_at_the_gate(world: World) -> None:
    restored(world)
    [job] = await world.submit()
    assert await world.held() == {
        job: "capacity: the database was restored from a backup: waiting until what runs has been seen"
    }
    await world.cluster(gpus=100)
    await world.gatekeeper.tick()
    await world.quota("acme", gpus=50)
    assert await world.facts() == []
    in_step(world)
    await world.gatekeeper.tick()
    [admitted] = await world.facts()
    assert isinstance(admitted, f.Admitted)
    assert admitted.version == f.Version(epoch=2, n=admitted.admission)


async def test_goes_on_waiting_until_the_last_event_of_the_restore_was_handled() -> None:
    told = Standing(epoch=2, restoring=True, backup_at=None)
    left = 3

    async def lag(consumer: str) -> int:
        assert consumer == "gatekeeper"
        return left

    standing = Restored(lambda: told, lag)
    await standing.look()
    told = replace(told, restoring=False)
    assert standing.now().restoring
    await standing.look()
    assert standing.now().restoring
    left = 0
    await standing.look()
    assert standing.now() == told
    left = 3
    await standing.look()
    assert standing.now() == told, "later on it is no restore"


async def test_those_who_do_not_fit_afterwards_are_told_why(world: World) -> None:
    restored(world)
    job, other = sorted(await world.submit(2, gpus=6))
    await world.held()
    in_step(world)
    await world.gatekeeper.tick()
    told = {fact.job: fact for fact in await world.facts()}
    assert (told[job].kind, told[other].kind) == ("admitted", "held")
    assert "needs 6 GPUs; cluster local has 2 of 8 free" in str(told[other])


async def test_what_was_admitted_in_the_lost_time_is_booked_even_over_quota(world: World) -> None:
    await world.quota("acme", gpus=2, slots=1)
    restored(world)
    running = [world.a_job(gpus=2) for _ in range(2)]
    for job in running:
        world.records[job] = raised(world.put(job, *world.launched(job)))
    await world.hears(*running)
    assert await world.used() == (2, 4)
    in_step(world)
    [waiting] = await world.submit(gpus=1)
    assert (await world.held())[waiting].startswith("quota.slots: needs a job slot; tenant acme has 0 of 1 free")
    await world.ends(running[0])
    assert await world.admitted() == []
    await world.ends(running[1])
    assert await world.admitted() == [waiting]


async def test_a_reservation_whose_job_ended_in_the_lost_time_ends(world: World) -> None:
    [job] = await world.submit(gpus=4)
    await world.api_applies()
    restored(world)
    world.records[job] = raised(world.walks(job))
    await world.hears(job)
    assert await world.used() == (0, 0)


async def test_the_admission_that_the_record_knows_takes_the_place_of_the_one_that_this_slice_remembers(
    world: World,
) -> None:
    [job] = await world.submit(gpus=4)
    [told] = await world.facts()
    assert isinstance(told, f.Admitted)
    restored(world)
    again = told.model_copy(update={"admission": 77, "version": f.Version(n=77)})
    world.records[job] = raised(world.put(job, again))
    await world.hears(job)
    assert await world.used() == (1, 4)
    rows = await world.db.fetch("SELECT admission FROM reservations WHERE slot_ended_at IS NULL")
    assert [row["admission"] for row in rows] == [77]


async def test_the_tombstone_of_an_ended_attempt_holds_against_what_the_stream_still_has_of_it(world: World) -> None:
    job = world.a_job(gpus=4)
    running = world.put(job, *world.launched(job))
    restored(world)
    world.records[job] = raised(world.put(job, *world.ended(job)))
    await world.hears(job)
    await world.gatekeeper.on_events([world.event(running)])
    assert await world.used() == (0, 0)
