"""A lost event leaves nothing running: the api is asked about launches that are open since long."""

from datetime import timedelta

from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.audit import Audit
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import Launcher, World, kinds


def later() -> FixedClock:
    """Eleven minutes from now: what is open now is open since long then."""
    return FixedClock(SystemClock().now() + timedelta(minutes=11))


def audit(launcher: Launcher, *known: Job, clock: FixedClock | None = None) -> Audit:
    """The audit of a launcher whose api knows these jobs."""

    async def ask(question: NewestAsked) -> NewestAnswer:
        asked = [job for job in known if job.id in question.jobs]
        return NewestAnswer(events=tuple(job.events[-1].decode() for job in asked))

    return Audit(launcher.store.open_since, launcher.events.audited, ask, clock or later())


async def test_an_end_whose_event_was_lost_is_found(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.launch(job.again())
    await world.until_ended(job)
    await world.facts(job)
    job.exited(world.submission(job))  # and its event never comes
    await audit(launcher, job).once()
    assert kinds(await world.until_sealed(launcher, job)) == ["gpus_freed", "launcher_sealed"]


async def test_silence_and_unknown_jobs_change_nothing(world: World) -> None:
    job = await world.job("sleep", "60")
    launcher = world.launcher()
    await launcher.launch(job.again())
    await world.facts(job)
    await audit(launcher).once()
    await launcher.end()
    assert (await world.row(job))["state"] == "submitted"


async def test_a_record_that_is_known_already_asks_nothing(world: World) -> None:
    job = await world.job("sleep", "60")
    launcher = world.launcher()
    await launcher.launch(job.again())
    await audit(launcher, job).once()
    assert kinds(await world.facts(job)) == ["accepted"]


async def test_young_launches_are_not_asked_about(world: World) -> None:
    job = await world.job("sleep", "60")
    launcher = world.launcher()
    await launcher.launch(job.again())
    await world.facts(job)
    job.stop()
    await audit(launcher, job, clock=FixedClock(SystemClock().now())).once()
    assert (await world.row(job))["state"] == "submitted"
