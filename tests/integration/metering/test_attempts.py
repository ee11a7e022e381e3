"""A job that is paused and goes on: each period of holding GPUs is a line of its own, and nothing counts in between."""

from shared.contracts.queries import UsageAsked
from shared.lifecycle import facts as f
from shared.lifecycle.inputs import Delete, Pause, Resume
from shared.runtime.messages import Delivery
from tests.integration.metering.world import DAY, Job, World, at

MINUTE = 60_000


def _is_paused(job: Job, end: str) -> list[Delivery]:
    """It is asked to pause, saves its state and is let go."""
    asked = job.apply(Pause(actor="rin", at=DAY))
    return [asked, job.exited(end, stop_recorded=True), job.sealed()]


def _goes_on(job: Job) -> list[Delivery]:
    resumed = job.apply(Resume(actor="rin", at=DAY))
    job.is_let_through()
    return [resumed, job.accepted()]


async def test_one_line_for_each_period_and_nothing_while_it_is_paused(world: World) -> None:
    job = world.job(gpus=2)
    await world.hears(job.accepted(), job.running("09:00"), *_is_paused(job, "09:10"))
    assert job.record.state == "PAUSED"
    [first] = await world.lines()
    assert (first.attempt, first.gpu_milliseconds) == (1, 2 * 10 * MINUTE)
    await world.hears(*_goes_on(job), job.running("12:00"), *_is_paused(job, "12:20"))
    [second] = await world.lines()
    assert (second.attempt, second.gpu_milliseconds, second.started_at) == (2, 2 * 20 * MINUTE, at("12:00"))
    await world.hears(*_goes_on(job), job.running("15:00"), job.exited("15:30"), job.sealed())
    assert [(line.attempt, line.kind) for line in await world.lines()] == [(3, "segment")]
    [row] = await world.usage("job")
    assert (row.segments, row.gpu_milliseconds) == (3, 2 * 60 * MINUTE)


async def test_an_attempt_that_is_paused_before_it_runs_costs_nothing(world: World) -> None:
    job = world.job()
    asked = job.apply(Pause(actor="rin", at=DAY))
    await world.hears(asked, job.apply(job.fact(f.LauncherSealed, ran=False)))
    assert job.record.state == "PAUSED"
    assert await world.lines() == []


async def test_the_whole_story_in_any_order_gives_the_same_lines(world: World) -> None:
    job = world.job()
    events = [job.accepted(), job.running("09:00"), *_is_paused(job, "09:10"), *_goes_on(job), job.running("10:00")]
    events += [job.exited("10:05"), job.sealed()]
    for event in reversed(events):
        await world.hears(event)
    await world.hears(*events)
    assert sorted((line.attempt, line.gpu_milliseconds) for line in await world.lines()) == [
        (1, 10 * MINUTE),
        (2, 5 * MINUTE),
    ]


async def test_a_deleted_jobs_lines_stay_and_none_is_added(world: World) -> None:
    job = world.job()
    await world.hears(job.accepted(), job.running("09:00"), job.exited("09:10"), job.sealed())
    await world.lines()
    await world.hears(job.apply(Delete(actor="rin", at=DAY)))
    assert await world.lines() == []
    answer = await world.usage_answer(UsageAsked(tenant=None, job=job.record.id, group_by="job"))
    assert [row.gpu_milliseconds for row in answer.rows] == [10 * MINUTE]
