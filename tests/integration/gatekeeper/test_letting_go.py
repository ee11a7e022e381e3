"""When reservations end: once each, never early, never too late; and what repeated, late and lost messages do."""

from datetime import timedelta

import pytest

from services.gatekeeper.room import Limits
from shared.lifecycle import facts as f
from shared.runtime.database import Database
from tests.integration.gatekeeper.world import World

GPUS_AND_SLOT = (1, True, True)
SLOT_ONLY = (1, False, True)
NOTHING = (1, False, False)


async def test_a_reservation_lasts_through_every_state_and_the_rival_starts_only_after_its_release(
    world: World,
) -> None:
    await world.quota("acme", gpus=8, slots=1)
    [job] = await world.submit(gpus=8)
    [rival] = await world.submit(gpus=8)
    assert await world.admitted() == [job]
    for step in world.launched(job):
        await world.happens(job, step)
        assert await world.reservations(job) == [GPUS_AND_SLOT], world.records[job].state
        assert await world.admitted() == []
    exited, freed, sealed = world.ended(job)
    await world.happens(job, exited)
    assert await world.reservations(job) == [GPUS_AND_SLOT]
    await world.happens(job, freed)
    assert await world.reservations(job) == [SLOT_ONLY]
    assert await world.admitted() == []
    await world.happens(job, sealed)
    assert await world.reservations(job) == [NOTHING]
    assert await world.admitted() == [rival]


async def test_copying_back_holds_no_gpus_so_that_the_next_job_may_have_them(world: World) -> None:
    [job] = await world.submit(gpus=8)
    [rival] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, *world.launched(job), *world.ended(job)[:2])
    assert world.records[job].state == "RUNNING"
    assert await world.admitted() == [rival]


async def test_a_stop_while_queued_leaves_the_line(world: World) -> None:
    [running] = await world.submit(gpus=8)
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, world.stop())
    await world.ends(running)
    assert await world.admitted() == []
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0


async def test_a_stop_before_the_launcher_was_asked_frees_everything_at_the_seal(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, world.stop())
    assert await world.used() == (1, 8)
    await world.happens(job, world.fact(job, f.StagingSealed, staged=False, outcome="none"))
    assert world.records[job].state == "STOPPED"
    assert await world.used() == (0, 0)


async def test_gpus_that_were_not_freed_at_the_end_stay_reserved_until_they_are(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    exited, freed, sealed = world.ended(job)
    await world.happens(job, *world.launched(job), exited, sealed)
    assert world.records[job].state == "SUCCEEDED"
    assert await world.used() == (0, 8)
    await world.happens(job, freed)
    assert await world.used() == (0, 0)


async def test_a_refused_admission_is_ended_and_the_job_waits_at_its_hold(world: World) -> None:
    [job] = await world.submit(gpus=8)
    world.put(job, world.hold())
    [admitted] = await world.facts()
    await world.happens(job, admitted)
    assert world.records[job].admission_refused == admitted.version.n
    assert await world.used() == (0, 0)
    assert await world.held() == {job: "hold: held by rin: wait for data"}
    await world.happens(job, world.release())
    assert await world.admitted() == [job]
    assert await world.used() == (1, 8)


async def test_a_hold_on_its_way_does_not_admit_twice(world: World) -> None:
    [job] = await world.submit(gpus=4)
    await world.happens(job, world.hold())
    assert await world.used() == (1, 4)
    assert [fact.kind for fact in await world.facts()] == ["admitted"]


async def test_a_new_attempt_ends_everything_older(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    world.put(job, *world.launched(job), *world.ended(job, code=1))
    world.put(job, world.retry())
    await world.hears(job)
    assert await world.reservations(job) == [NOTHING, (2, True, True)]
    assert await world.admitted() == [job]


async def test_a_redelivered_event_books_once_and_answers_with_the_same_admission(world: World) -> None:
    [job] = await world.submit(gpus=4)
    event = world.event(world.records[job])
    await world.gatekeeper.on_events([event])
    assert await world.used() == (1, 4)
    first, again = await world.facts()
    assert first == again
    ids = [row["msg_id"] for row in await world.db.fetch("SELECT msg_id FROM outbox ORDER BY id")]
    assert ids[1] == f"{ids[0]}/again.{event.stream_seq}"


async def test_a_held_job_that_is_asked_about_again_answers_with_its_gates(world: World) -> None:
    await world.submit(gpus=8)
    [job] = await world.submit(gpus=1)
    await world.facts()
    await world.hears(job)
    [again] = await world.facts()
    assert isinstance(again, f.Held)
    assert again.gates[0].name == "capacity"


async def test_an_older_event_changes_nothing(world: World) -> None:
    [job] = await world.submit(gpus=8)
    queued = world.event(world.records[job])
    await world.api_applies()
    await world.ends(job)
    await world.gatekeeper.on_events([queued])
    assert await world.used() == (0, 0)
    assert await world.admitted() == []


async def test_an_end_that_comes_before_its_submit_leaves_a_tombstone(world: World) -> None:
    job = world.a_job(gpus=8)
    queued = world.event(world.records[job])
    await world.happens(job, world.stop())
    await world.gatekeeper.on_events([queued])
    assert await world.facts() == []
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    assert await world.db.fetchval("SELECT ended_at IS NOT NULL FROM attempts WHERE job = $1", job)


async def test_an_attempt_found_running_is_booked_even_over_quota(world: World) -> None:
    await world.quota("acme", gpus=2)
    job = world.a_job(gpus=8)
    world.put(job, *world.launched(job))
    assert world.records[job].current.admission == 0
    await world.hears(job)
    assert await world.used() == (1, 8)
    await world.happens(job, *world.ended(job))
    assert await world.used() == (0, 0)


async def test_an_adopted_attempt_that_had_a_reservation_keeps_that_one(world: World) -> None:
    [job] = await world.submit(gpus=4)
    await world.facts()
    await world.happens(job, *world.launched(job))
    assert await world.reservations(job) == [GPUS_AND_SLOT]
    await world.happens(job, *world.ended(job))
    assert await world.used() == (0, 0)


async def test_a_deleted_job_lets_go_of_everything(world: World) -> None:
    [job] = await world.submit(gpus=4)
    await world.api_applies()
    exited, _, sealed = world.ended(job)
    await world.happens(job, *world.launched(job), exited, sealed)
    assert await world.used() == (0, 4)
    world.records[job] = world.records[job].model_copy(update={"deleted": True, "seq": world.records[job].seq + 1})
    await world.hears(job)
    assert await world.used() == (0, 0)


async def test_a_whole_batch_of_one_job_counts_as_its_newest_event(world: World) -> None:
    job = world.a_job(gpus=8)
    events = [world.event(world.records[job])]
    world.put(job, world.hold())
    events.append(world.event(world.records[job]))
    world.put(job, world.release())
    events.append(world.event(world.records[job]))
    await world.gatekeeper.on_events(list(reversed(events)))
    assert await world.admitted() == [job]


async def test_after_a_restore_the_higher_epoch_wins_over_a_higher_seq(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    world.put(job, *world.launched(job), *world.ended(job))
    await world.hears(job)
    restored = world.records[job].model_copy(update={"epoch": 2, "seq": 1})
    await world.gatekeeper.on_events([world.event(restored)])
    rows = await world.db.fetch("SELECT epoch, seq FROM attempts")
    assert [tuple(row) for row in rows] == [(2, 1)]


async def test_an_attempt_that_a_restored_record_does_not_know_lets_go(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    world.put(job, *world.launched(job), *world.ended(job, code=1))
    before = world.records[job]
    await world.happens(job, world.retry())
    await world.api_applies()
    assert await world.reservations(job) == [(1, False, False), (2, True, True)]
    await world.gatekeeper.on_events([world.event(before.model_copy(update={"epoch": 2}))])
    assert await world.reservations(job) == [(1, False, False), (2, False, False)]


async def test_nothing_leaks_when_some_of_many_jobs_fail(world: World) -> None:
    jobs = await world.submit(8, gpus=1)
    assert sorted(await world.admitted()) == sorted(jobs)
    await world.ends(*jobs[:4])
    await world.ends(*jobs[4:], code=1)
    assert await world.used() == (0, 0)
    assert await world.db.fetchval("SELECT count(*) FROM reservations WHERE ended_why IS NULL") == 0


async def test_defaults_apply_to_tenants_without_a_quota(db: Database) -> None:
    world = World(db, default=Limits(slots=1, gpus=4))
    await world.cluster()
    await world.submit(gpus=1)
    [job] = await world.submit(gpus=1)
    assert await world.held() == {job: "quota.slots: needs a job slot; tenant acme has 0 of 1 free"}


async def test_one_job_can_never_hold_two_slots(world: World) -> None:
    [job] = await world.submit(gpus=1)
    with pytest.raises(Exception, match="reservations_one_slot"):
        await world.db.execute(
            "INSERT INTO reservations (job, attempt, admission, tenant, cluster, coretype, gpus, opened_at)"
            " VALUES ($1, 1, 99, 'acme', 'local', 'local', 1, now())",
            job,
        )


async def test_old_tombstones_and_reservations_are_forgotten_and_open_ones_never(world: World) -> None:
    [done] = await world.submit(gpus=1)
    [running] = await world.submit(gpus=1)
    await world.api_applies()
    await world.ends(done)
    world.clock.advance(timedelta(days=9))
    await world.gatekeeper.purge()
    assert [row["job"] for row in await world.db.fetch("SELECT job FROM reservations")] == [running]
    assert [row["job"] for row in await world.db.fetch("SELECT job FROM attempts")] == [running]


async def test_an_event_of_a_job_that_moves_on_under_its_reservation_writes_nothing(world: World) -> None:
    [job] = await world.submit(gpus=4)
    await world.api_applies()
    before = await world.db.fetch("SELECT xmin FROM attempts")
    for step in world.launched(job):
        await world.happens(job, step)
    assert await world.db.fetch("SELECT xmin FROM attempts") == before


async def test_an_attempt_that_went_to_another_cluster_draws_on_that_one(world: World) -> None:
    await world.cluster(name="other", gpus=16)
    [job] = await world.submit(gpus=4)
    await world.api_applies()
    assert await world.db.fetchval("SELECT cluster FROM reservations") == "other"
    await world.happens(job, *world.launched(job))
    assert await world.db.fetchval("SELECT cluster FROM reservations") == "local"


async def test_a_job_seen_running_while_it_waits_leaves_the_line_and_is_booked(world: World) -> None:
    await world.submit(gpus=8)
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, *world.launched(job))
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    assert await world.used() == (2, 16)
