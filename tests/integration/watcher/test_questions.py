"""Job events: whose end is owed, and the newest fact again when it is asked for."""

from shared.backends.local.sightings import LocalState
from shared.lifecycle.facts import GpusFreed, InputValid, LauncherSealed
from shared.lifecycle.inputs import Delete
from tests.integration.launcher.story import Job
from tests.integration.watcher.world import World

FOREVER = ("sh", "-c", "touch ready; while true; do sleep 0.05; done")


async def test_an_event_seen_again_is_answered_with_the_newest_fact_under_a_new_message_id(world: World) -> None:
    job, submission = await world.launched(*FOREVER)
    watcher = world.watcher()
    await watcher.handle(job.again())
    await world.until_told(watcher, "seen_running")
    await watcher.handle(job.again())
    (again,) = await world.facts()
    assert again.kind == "seen_running"
    await world.backend.client.kill(submission)
    end = await world.until_told(watcher, "exited")
    await watcher.handle(job.again())
    assert await world.facts() == [end]
    ids = [row["msg_id"] for row in await world.database.fetch("SELECT msg_id FROM outbox ORDER BY id")]
    assert len(set(ids)) == len(ids) == 4


async def test_an_older_event_is_dropped(world: World) -> None:
    job, submission = await world.launched("true")
    old = job.again()
    await world.backend.until(submission, LocalState.EXITED)
    watcher = world.watcher()
    await watcher.handle(job.exited(submission))
    await watcher.handle(old)
    await watcher.look()
    assert [fact.kind for fact in await world.facts()] == ["exited"]
    (row,) = await world.database.fetch("SELECT over, seq FROM watched")
    assert (row["over"], row["seq"]) == (True, job.record.seq)


async def test_a_job_that_was_never_launched_leaves_no_row(world: World) -> None:
    job = Job("true")
    job.staged()
    await world.watcher().handle(job.again())
    assert await world.database.fetchval("SELECT count(*) FROM watched") == 0


async def test_a_batch_of_many_events_of_one_job_is_one_row_with_the_newest(world: World) -> None:
    job, submission = await world.launched("true")
    deliveries = [job.again(), job.exited(submission), job.again(0)]
    await world.watcher().handle(*deliveries)
    await world.watcher().handle(deliveries[0])
    rows = await world.database.fetch("SELECT seq, over FROM watched")
    assert [(row["seq"], row["over"]) for row in rows] == [(job.record.seq, True)]


async def test_a_newer_attempt_ends_the_watch_over_older_ones(world: World) -> None:
    job, submission = await world.launched("true")
    watcher = world.watcher()
    await watcher.handle(job.again())
    job.apply(InputValid(**job.head("stager")))
    late = job.again()
    job.record = job.record.model_copy(update={"state": "FAILED"})
    job.retry()
    job.staged()
    world.accept(job, submission.replace(".a1.", ".a2."))
    await watcher.handle(job.again())
    await watcher.handle(late)
    rows = await world.database.fetch("SELECT attempt, over FROM watched ORDER BY attempt")
    assert [(row["attempt"], row["over"]) for row in rows] == [(1, True), (2, False)]


async def test_a_deletion_closes_what_was_open_whatever_was_heard_before_it(world: World) -> None:
    job, submission = await world.launched("true")
    watcher = world.watcher()
    await watcher.handle(job.again())
    job.exited(submission)
    job.apply(GpusFreed(**job.head("launcher")), LauncherSealed(**job.head("launcher"), ran=True))
    deleted = job.apply(Delete(actor="rin", at=world.clock.now()))
    assert deleted is not None
    assert job.record.deleted
    await watcher.handle(deleted)
    assert await world.database.fetchval("SELECT count(*) FROM watched WHERE NOT over") == 0
