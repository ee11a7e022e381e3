"""Who is let through, in which order, and what the others are told."""

from datetime import timedelta

from services.gatekeeper.room import EVERYBODY
from tests.integration.gatekeeper.world import World


async def test_admits_a_job_that_fits_and_books_its_reservation(world: World) -> None:
    [job] = await world.submit(gpus=2)
    assert await world.admitted() == [job]
    assert await world.used() == (1, 2)
    assert world.records[job].state == "SUBMITTED"


async def test_holds_a_job_with_the_numbers_of_its_tenants_quota(world: World) -> None:
    await world.quota("acme", gpus=4)
    await world.submit(gpus=3)
    [job] = await world.submit(gpus=2)
    assert await world.held() == {job: "quota.gpus: needs 2 GPUs; tenant acme has 1 of 4 free"}


async def test_names_the_first_closed_gate_and_lists_all(world: World) -> None:
    await world.quota("acme", slots=1, gpus=8)
    await world.submit(gpus=8)
    [job] = await world.submit(gpus=1)
    await world.held()
    assert [gate.name for gate in world.records[job].closed_gates] == ["quota.slots", "quota.gpus", "capacity"]
    assert world.records[job].gate == world.records[job].closed_gates[0]


async def test_says_what_the_cluster_has_free(world: World) -> None:
    await world.submit(gpus=6)
    [job] = await world.submit(gpus=4)
    assert await world.held() == {job: "capacity: needs 4 GPUs; cluster local has 2 of 8 free of coretype local"}


async def test_says_that_no_slot_is_free(world: World) -> None:
    await world.cluster(slots=1)
    await world.submit(gpus=0)
    [job] = await world.submit(gpus=0)
    assert await world.held() == {job: "capacity: needs a job slot; cluster local has 0 of 1 free for coretype local"}


async def test_goes_by_priority_then_by_age(world: World) -> None:
    await world.cluster(slots=1)
    [running] = await world.submit(gpus=0)
    old = world.a_job(gpus=0, age_seconds=60)
    young = world.a_job(gpus=0, age_seconds=10)
    urgent = world.a_job(gpus=0, priority=5)
    await world.hears(young, urgent, old)
    order = await world.admitted()
    for _ in range(3):
        await world.ends(order[-1])
        order += await world.admitted()
    assert order == [running, urgent, old, young]


async def test_a_newcomer_does_not_jump_the_line(world: World) -> None:
    await world.cluster(slots=1)
    [running] = await world.submit(gpus=0)
    [waiting] = await world.submit(gpus=0, age_seconds=-1)
    await world.admitted()
    newcomer = world.a_job(gpus=0, age_seconds=-2)
    world.walks(running)
    await world.hears(newcomer, running)
    assert await world.admitted() == [waiting]


async def test_a_smaller_job_passes_one_that_its_own_tenants_quota_holds(world: World) -> None:
    await world.quota("acme", gpus=4)
    await world.submit(gpus=2)
    [large] = await world.submit(gpus=3)
    [small] = await world.submit(gpus=2)
    assert large in await world.held()
    assert world.records[small].state == "SUBMITTED"


async def test_a_tenant_at_its_quota_never_blocks_another(world: World) -> None:
    await world.quota("acme", slots=1)
    await world.cluster(slots=2)
    line = sorted(await world.submit(520, tenant="acme", gpus=0))
    assert await world.admitted() == line[:1]
    [first] = await world.submit(tenant="zeta", gpus=0)
    assert await world.admitted() == [first]
    [second] = await world.submit(tenant="zeta", gpus=0)
    await world.api_applies()
    await world.ends(first)
    assert await world.admitted() == [second]
    await world.ends(line[0])
    assert await world.admitted() == line[1:2]


async def test_a_thousand_jobs_and_64_slots_all_get_through_in_order(world: World) -> None:
    jobs = [world.a_job(gpus=0, age_seconds=1000 - number) for number in range(1000)]
    for start in range(0, 1000, 200):
        await world.hears(*jobs[start : start + 200])
    order: list[str] = []
    while batch := await world.admitted():
        order += batch
        assert (await world.used())[0] <= 64
        await world.ends(*batch)
    assert order == jobs
    assert await world.used() == (0, 0)


async def test_the_deployments_ceiling_holds_whatever_tenants_may(world: World) -> None:
    await world.quota(EVERYBODY, gpus=3)
    await world.submit(tenant="acme", gpus=2)
    [job] = await world.submit(tenant="zeta", gpus=2)
    assert await world.held() == {job: "quota.gpus: needs 2 GPUs; the deployment has 1 of 3 free"}


async def test_a_raised_limit_lets_in_at_once_and_a_lowered_one_counts_from_the_next(world: World) -> None:
    await world.quota("acme", gpus=2)
    await world.submit(gpus=2)
    [job] = await world.submit(gpus=2)
    await world.api_applies()
    quota = await world.quota("acme", gpus=4)
    assert (quota.changed_by, quota.gpus_used) == ("root", 4)
    assert await world.admitted() == [job]
    await world.quota("acme", gpus=1)
    assert await world.used() == (2, 4)
    await world.submit(gpus=1)
    assert list((await world.held()).values()) == ["quota.gpus: needs 1 GPU; tenant acme has 0 of 1 free"]


async def test_tells_waiting_jobs_that_a_lowered_limit_shuts_out_for_good(world: World) -> None:
    await world.quota("acme", gpus=4)
    await world.submit(gpus=4)
    [job] = await world.submit(gpus=3)
    await world.held()
    await world.quota("acme", gpus=2)
    assert await world.held() == {job: "quota.gpus: needs 3 GPUs; tenant acme may use 2 at most"}
    await world.quota("acme", gpus=5)
    assert await world.held() == {job: "quota.gpus: needs 3 GPUs; tenant acme has 1 of 5 free"}


async def test_numbers_that_move_are_not_told_again(world: World) -> None:
    first, second = await world.submit(2, gpus=4)
    [job] = await world.submit(gpus=8)
    await world.held()
    await world.ends(first)
    assert await world.held() == {}
    await world.ends(second)
    assert await world.admitted() == [job]


async def test_a_hold_is_told_and_its_release_lets_through(world: World) -> None:
    job = world.a_job()
    world.put(job, world.hold())
    await world.hears(job)
    assert await world.held() == {job: "hold: held by rin: wait for data"}
    await world.happens(job, world.release())
    assert await world.admitted() == [job]


async def test_a_cooldown_ends_by_itself(world: World) -> None:
    job = world.a_job()
    until = world.clock.now() + timedelta(seconds=15)
    record = world.records[job]
    attempt = record.current.model_copy(update={"cooldown_until": until, "number": 2})
    world.records[job] = record.model_copy(update={"attempts": (attempt,), "attempt": 2})
    await world.hears(job)
    assert await world.held() == {
        job: "cooldown: attempt 1 failed; attempt 2 may start from 2026-11-30 12:00:15 UTC on"
    }
    assert [gate.opens_at for gate in world.records[job].closed_gates] == [until]
    await world.gatekeeper.tick()
    assert await world.admitted() == []
    world.clock.advance(timedelta(seconds=15))
    await world.gatekeeper.tick()
    assert await world.admitted() == [job]


async def test_a_silent_cluster_is_unknown_until_it_reports_again(world: World) -> None:
    [running] = await world.submit(gpus=8)
    [waiting] = await world.submit(gpus=8)
    await world.held()
    world.clock.advance(timedelta(seconds=31))
    await world.gatekeeper.tick()
    silent = "cluster local has not reported since 2026-11-30 12:00:00 UTC"
    assert await world.held() == {waiting: f"capacity: what coretype local has free is unknown: {silent}"}
    await world.ends(running)
    assert await world.admitted() == []
    await world.cluster()
    assert await world.admitted() == [waiting]


async def test_a_cluster_that_could_not_be_heard_is_not_called_silent(world: World) -> None:
    """Else an outage of the broker would tell everybody who waits, twice."""
    await world.submit(gpus=8)
    [waiting] = await world.submit(gpus=8)
    await world.held()
    world.clock.advance(timedelta(minutes=2))
    world.connected = False
    await world.gatekeeper.tick()
    assert await world.held() == {}
    world.connected = True
    await world.gatekeeper.tick()
    assert list(await world.held()) == [waiting]


async def test_an_unreachable_cluster_is_unknown_and_keeps_its_size(world: World) -> None:
    world.clock.advance(timedelta(seconds=5))
    await world.cluster(gpus=0, slots=0, reachable=False)
    [job] = await world.submit(gpus=8)
    away = "cluster local cannot be reached since 2026-11-30 12:00:05 UTC"
    assert await world.held() == {job: f"capacity: what coretype local has free is unknown: {away}"}


async def test_takes_the_emptier_of_two_clusters_and_only_the_region_asked_for(world: World) -> None:
    await world.cluster(name="east", coretype="h100", region="eu-east", gpus=8)
    await world.cluster(name="west", coretype="h100", region="eu-west", gpus=16)
    await world.submit(gpus=8, coretype="h100", region="eu-east")
    [full] = await world.submit(gpus=1, coretype="h100", region="eu-east")
    [other] = await world.submit(gpus=1, coretype="h100")
    held = await world.held()
    assert held == {full: "capacity: needs 1 GPU; cluster east has 0 of 8 free of coretype h100"}
    assert await world.db.fetchval("SELECT cluster FROM reservations WHERE job = $1", other) == "west"


async def test_the_tick_finds_room_that_nobody_announced(world: World) -> None:
    await world.cluster(slots=1)
    await world.submit(gpus=0)
    [job] = await world.submit(gpus=0)
    await world.admitted()
    await world.db.execute("UPDATE reservations SET slot_ended_at = now(), gpus_ended_at = now()")
    await world.gatekeeper.tick()
    assert await world.admitted() == [job]


async def test_a_small_job_far_back_gets_what_the_large_ones_before_it_cannot_use(world: World) -> None:
    first, _ = await world.submit(2, gpus=4)
    await world.submit(100, gpus=8, age_seconds=10)
    [small] = await world.submit(gpus=4)
    await world.api_applies()
    await world.ends(first)
    assert await world.admitted() == [small]


async def test_from_a_certain_age_on_gpus_are_kept_for_a_large_job(world: World) -> None:
    first, second = await world.submit(2, gpus=4)
    [large] = await world.submit(gpus=8)
    await world.api_applies()
    world.clock.advance(timedelta(minutes=6))
    await world.cluster()
    await world.ends(first)
    [small] = await world.submit(gpus=4)
    [free] = await world.submit(gpus=0)
    kept = "the 4 free on cluster local are kept for a job that needs 8 and has waited longer"
    told = await world.api_applies()
    assert [fact.kind for fact in told] == ["held", "admitted"]
    assert world.records[small].gate is not None
    assert world.records[small].stages[0].waiting_on == f"capacity: needs 4 GPUs; {kept}"
    assert world.records[free].state == "SUBMITTED"
    [urgent] = await world.submit(gpus=4, priority=1)
    assert await world.admitted() == [urgent]
    await world.ends(second, urgent)
    assert await world.admitted() == [large]
