"""What is counted, and what the ledger says: cases E2, E4, E5, E9 of the field, in any order of messages."""

import itertools
import random

from shared.contracts.queries import UsageAsked
from shared.lifecycle.reasons import EndReason
from shared.runtime.migrate import differences
from tests.databases import FreshDatabase
from tests.integration.metering.world import World, at

HOUR = 3_600_000


async def test_counts_wall_time_times_gpus_in_integer_milliseconds(world: World) -> None:
    job = world.job(gpus=2)
    await world.hears(job.accepted(), job.running("09:00:00.250"), job.exited("09:00:10.001"), job.sealed())
    [line] = await world.lines()
    assert line.gpu_milliseconds == 2 * 9_751
    assert (line.tenant, line.user, line.coretype, line.gpus) == ("acme", "rin", "local", 2)
    assert (line.billable, line.estimated, line.kind, line.revision) == (True, False, "segment", 1)
    assert line.id == f"{job.record.id}/1/s1/0/1"


async def test_charges_for_running_only_and_not_for_waiting_at_the_backend(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.pending())
    assert await world.lines() == []
    await world.hears(job.running("10:10"))
    assert await world.lines() == []
    await world.hears(job.exited("10:30"), job.sealed())
    [line] = await world.lines()
    assert line.gpu_milliseconds == 20 * 60_000


async def test_leaves_suspended_time_out(world: World) -> None:
    job = world.job(gpus=2)
    await world.hears(job.accepted(), job.running("09:00"))
    await world.hears(job.running("09:00", seen="10:30", suspended_since=at("10:00")))
    await world.hears(job.running("09:00", seen="12:01", suspended_ms=2 * HOUR))
    await world.hears(job.exited("12:30", suspended_ms=2 * HOUR))
    [line] = await world.lines()
    assert line.gpu_milliseconds == 3 * HOUR


async def test_a_job_that_ends_while_suspended_is_counted_to_its_suspension(world: World) -> None:
    job = world.job(gpus=2)
    await world.hears(job.accepted(), job.running("09:00", seen="10:30", suspended_since=at("10:00")))
    await world.hears(job.exited("12:00"))
    [line] = await world.lines()
    assert line.gpu_milliseconds == 2 * HOUR


async def test_an_unseen_end_counts_to_the_last_sighting_and_is_corrected_when_the_truth_appears(world: World) -> None:
    job = world.job(infrastructure_budget=0)
    await world.hears(job.accepted(), job.running("10:00", seen="10:05"), job.lost(), job.sealed())
    [guessed] = await world.lines()
    assert (guessed.gpu_milliseconds, guessed.estimated, guessed.billable) == (5 * 60_000, True, False)
    assert job.record.end_reason == EndReason.LOST
    await world.hears(job.exited("10:20", restart=0))
    back, right = await world.lines()
    assert (back.kind, back.gpu_milliseconds, back.id) == ("reversal", -5 * 60_000, f"{guessed.id}/reversed")
    assert (right.kind, right.gpu_milliseconds, right.revision) == ("segment", 20 * 60_000, 2)
    assert (right.estimated, right.billable) == (False, True)
    [row] = await world.usage()
    assert (row.segments, row.gpu_milliseconds, row.estimated) == (1, 20 * 60_000, False)


async def test_a_line_is_taken_back_when_the_lost_job_is_seen_running_again(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.running("10:00", seen="10:05"), job.lost())
    await world.lines()
    await world.hears(job.running("10:00", seen="10:15"))
    assert [line.kind for line in await world.lines()] == ["reversal"]
    assert await world.usage() == []
    await world.hears(job.exited("11:00"), job.sealed())
    [line] = await world.lines()
    assert (line.gpu_milliseconds, line.revision) == (HOUR, 2)


async def test_clocks_that_disagree_never_give_negative_time(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.running("08:20:10"), job.exited("08:14:55"), job.sealed())
    [line] = await world.lines()
    assert line.gpu_milliseconds == 0
    assert (line.started_at, line.ended_at) == (at("08:20:10"), at("08:14:55"))


async def test_a_requeued_segment_is_recorded_and_not_billed(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.running("10:00"), job.requeued("10:30"))
    await world.hears(
        job.pending(restart=1), job.running("12:00", restart=1), job.exited("12:20", restart=1), job.sealed()
    )
    lines = await world.lines()
    assert [(line.restart, line.gpu_milliseconds, line.billable) for line in lines] == [
        (0, 30 * 60_000, False),
        (1, 20 * 60_000, True),
    ]
    [row] = await world.usage()
    assert (row.gpu_milliseconds, row.not_billable_gpu_milliseconds) == (50 * 60_000, 30 * 60_000)


async def test_an_end_by_the_infrastructure_is_not_billed(world: World) -> None:
    job = world.job(infrastructure_budget=0)
    await world.hears(
        job.accepted(), job.running("10:00"), job.exited("10:30", reason=EndReason.NODE_LOST), job.sealed()
    )
    [line] = await world.lines()
    assert (line.gpu_milliseconds, line.billable) == (30 * 60_000, False)


async def test_every_segment_is_kept_though_later_events_leave_older_ones_out(world: World) -> None:
    job = world.job()
    events = [job.accepted()]
    for restart in range(4):
        events += [job.running(f"1{restart}:00", restart=restart), job.requeued(f"1{restart}:10", restart=restart)]
    events += [job.running("15:00", restart=4), job.exited("15:05", restart=4), job.sealed()]
    await world.hears(*events)
    [row] = await world.usage("job")
    assert (row.job, row.segments, row.gpu_milliseconds) == (job.record.id, 5, 45 * 60_000)


async def test_the_first_attempts_segment_is_read_from_the_event_of_an_automatic_retry(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.running("10:00"))
    await world.hears(job.exited("10:30", reason=EndReason.NODE_LOST))
    await world.hears(job.sealed())
    assert job.record.attempt == 2
    job.is_let_through()
    await world.hears(job.accepted(), job.running("11:00"), job.exited("11:30"), job.sealed())
    lines = await world.lines()
    assert [(line.attempt, line.gpu_milliseconds) for line in lines] == [(1, 30 * 60_000), (2, 30 * 60_000)]


async def test_any_order_with_duplicates_gives_the_same_usage_and_bills_once(world: World) -> None:
    shuffle = random.Random(7).shuffle
    jobs = []
    for number in range(6):
        job = world.job(gpus=number + 1)
        events = [job.accepted(), job.running("10:00"), job.requeued("10:30"), job.pending(restart=1)]
        events += [job.running("11:00", restart=1), job.exited("11:10", restart=1), job.sealed()]
        events *= 2
        shuffle(events)
        for event in events:
            await world.hears(event)
        jobs.append(job)
    expected = {job.record.id: job.record.resources.gpus * 40 * 60_000 for job in jobs}
    assert {row.job: row.gpu_milliseconds for row in await world.usage("job")} == expected
    lines = await world.lines()
    assert len({line.id for line in lines}) == len(lines)
    for job in jobs:
        assert sum(line.gpu_milliseconds for line in lines if line.job == job.record.id) == expected[job.record.id]


async def test_every_order_of_a_late_correction_ends_in_the_truth(world: World) -> None:
    for order in itertools.permutations(range(4)):
        job = world.job(infrastructure_budget=0)
        job.accepted()
        events = [job.running("10:00", seen="10:05"), job.lost(), job.sealed(), job.exited("10:20")]
        for index in order:
            await world.hears(events[index])
        lines = await world.lines()
        assert sum(line.gpu_milliseconds for line in lines) == 20 * 60_000, order


async def test_a_redelivered_batch_adds_nothing(world: World) -> None:
    job = world.job()
    events = [job.accepted(), job.running("10:00"), job.exited("10:30"), job.sealed()]
    await world.hears(*events)
    assert len(await world.lines()) == 1
    await world.hears(*events)
    assert await world.lines() == []


async def test_answers_usage_by_tenant_user_and_job(world: World) -> None:
    for tenant, user, minutes in (("acme", "rin", 10), ("acme", "kim", 20), ("zeta", "rin", 30)):
        job = world.job(tenant=tenant, user=user)
        await world.hears(job.accepted(), job.running("10:00"), job.exited(f"10:{minutes}"), job.sealed())
    by_tenant = [(row.tenant, row.gpu_milliseconds) for row in await world.usage()]
    assert by_tenant == [("acme", 30 * 60_000), ("zeta", 30 * 60_000)]
    by_user = [(row.user, row.gpu_milliseconds) for row in await world.usage("user", tenant="acme")]
    assert by_user == [("kim", 20 * 60_000), ("rin", 10 * 60_000)]
    [row] = await world.usage("job", tenant="zeta")
    assert await world.usage("job", tenant="zeta", job=row.job) == [row]
    assert await world.usage("job", tenant="acme", job=row.job) == []


async def test_sums_are_the_same_however_they_are_grouped(world: World) -> None:
    """Over attempts, requeued segments, an estimated end that was corrected, and events that come late and twice."""
    events = []
    retried = world.job(user="kim")
    events += [retried.accepted(), retried.running("10:00"), retried.exited("10:10", code=1), retried.sealed()]
    requeued = world.job(gpus=2)
    events += [requeued.accepted(), requeued.running("10:00"), requeued.requeued("10:05")]
    events += [requeued.running("10:10", restart=1), requeued.exited("10:20", restart=1), requeued.sealed()]
    lost = world.job()
    events += [lost.accepted(), lost.running("10:00", seen="10:01"), lost.lost(), lost.exited("10:07")]
    unseen = world.job(tenant="zeta")
    events += [unseen.accepted(), unseen.running("10:00", seen="10:02"), unseen.lost()]
    for event in [*events, *events[::-2]]:
        await world.hears(event)
    minute = 60_000
    by_tenant = await world.usage()
    assert {row.tenant: row.gpu_milliseconds for row in by_tenant} == {"acme": 47 * minute, "zeta": 2 * minute}
    assert [row.estimated for row in by_tenant] == [False, True]
    for group in ("user", "job"):
        rows = await world.usage(group)
        for tenant in by_tenant:
            own = [row for row in rows if row.tenant == tenant.tenant]
            for number in ("segments", "gpu_milliseconds", "not_billable_gpu_milliseconds"):
                assert sum(getattr(row, number) for row in own) == getattr(tenant, number), (group, number)
    few = await world.usage_answer(UsageAsked(tenant="acme", group_by="job", limit=1))
    assert few.rest is not None
    assert (few.rest.groups, few.rest.segments) == (2, 4 - few.rows[0].segments)
    assert few.rows[0].gpu_milliseconds + few.rest.gpu_milliseconds == 47 * minute, "what had no place is summed"
    ledger = await world.lines()
    assert sum(line.gpu_milliseconds for line in ledger) == 49 * minute
    assert sum(line.gpu_milliseconds for line in ledger if not line.billable) == 12 * minute


async def test_migrations_make_the_tables_that_are_declared(service_database: FreshDatabase) -> None:
    made = await service_database("metering")
    assert await differences("metering", made.owner_url) == []
