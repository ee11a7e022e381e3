"""What real processes leave is told as facts, once per change."""

import json
import os
import signal

from shared.backends.local import layout
from shared.backends.local.sightings import LocalState
from shared.lifecycle.reasons import EndReason
from tests.integration.watcher.world import World, blind

FOREVER = ("sh", "-c", "touch ready; while true; do sleep 0.05; done")


async def test_exit_0_is_told_with_its_times_and_no_stop(world: World) -> None:
    _, submission = await world.ended("true")
    watcher = world.watcher()
    await watcher.look()
    (fact,) = await world.facts()
    assert (fact.kind, fact.code, fact.signal, fact.reason) == ("exited", 0, None, None)
    assert fact.segment.submission == submission
    assert fact.started_at <= fact.ended_at
    assert fact.stop_recorded is False
    assert fact.source == "watcher/local"


async def test_exit_3_and_a_signal_are_told_as_they_are(world: World) -> None:
    await world.ended("sh", "-c", "exit 3")
    await world.ended("sh", "-c", "kill -SEGV $$")
    await world.watcher().look()
    assert sorted(((fact.code, fact.signal) for fact in await world.facts()), key=str) == [(3, None), (None, 11)]


async def test_a_command_that_is_not_there_never_started(world: World) -> None:
    await world.ended("no-such-program")
    await world.watcher().look()
    (fact,) = await world.facts()
    assert (fact.reason, fact.started_at) == (EndReason.COMMAND_NOT_FOUND, None)
    assert "no-such-program" in fact.message


async def test_a_file_that_cannot_be_executed_is_told_as_such(world: World) -> None:
    await world.ended("./data", files={"data": "just text"})
    await world.watcher().look()
    (fact,) = await world.facts()
    assert fact.reason is EndReason.COMMAND_NOT_EXECUTABLE


async def test_a_job_that_nobody_saw_running_is_told_by_its_end_alone(world: World) -> None:
    watcher = world.watcher()
    await watcher.look()
    await world.ended("sleep", "0.01")
    await watcher.look()
    (fact,) = await world.facts()
    assert fact.kind == "exited"
    assert fact.started_at is not None


async def test_a_running_command_is_told_once_and_then_its_end(world: World) -> None:
    watcher = world.watcher()
    job, submission = await world.launched(*FOREVER)
    running = await world.until_told(watcher, "seen_running")
    assert (running.job, running.attempt, running.raw_state) == (job.id, 1, "running")
    for _ in range(3):
        assert await watcher.look()
    assert await world.facts() == []
    await world.backend.client.stop(submission, 600)
    end = await world.until_told(watcher, "exited")
    assert (end.signal, end.stop_recorded) == (15, True)
    assert end.segment == running.segment
    assert running.version < end.version
    assert not await watcher.look()


async def test_a_restarted_watcher_tells_nothing_twice_and_misses_nothing(world: World) -> None:
    first = world.watcher()
    job, submission = await world.launched(*FOREVER)
    await world.until_told(first, "seen_running")
    await world.watcher().look()
    assert await world.facts() == []
    await world.backend.client.kill(submission)
    await world.until_told(world.watcher(), "exited")
    await world.watcher().look()
    assert await world.facts() == []
    assert job.id


async def test_what_could_not_be_committed_is_told_at_the_next_look(world: World) -> None:
    await world.ended("true")
    watcher = world.watcher()
    await world.database.close()
    try:
        await watcher.look()
    except Exception:  # whatever the loss of the database raises
        await world.database.connect()
    await watcher.look()
    (fact,) = await world.facts()
    assert fact.kind == "exited"


async def test_a_runner_that_found_its_attempt_revoked_has_no_exit_of_the_command(world: World) -> None:
    request = await world.backend.request("j" + "0" * 26, "touch", "ran")
    submission = await world.backend.submit(request)
    await world.backend.until(submission, LocalState.EXITED)
    record = world.backend.record(submission, layout.EXIT)
    end = json.loads(record.read_text())
    end |= {"ran": False, "reason": "revoked", "code": 75, "started_at": None}
    record.write_text(json.dumps(end))
    await world.watcher().look()
    assert await world.facts() == []


async def test_an_unknown_word_is_never_an_end_and_others_are_told(world: World) -> None:
    _, strange = await world.ended("true")
    await world.ended("true")
    record = world.backend.record(strange, layout.EXIT)
    end = json.loads(record.read_text())
    record.write_text(json.dumps(end | {"reason": "abducted"}))
    watcher = world.watcher()
    await watcher.look()
    (fact,) = await world.facts()
    assert fact.segment.submission != strange
    assert watcher.words.unknown == {"abducted"}


async def test_an_end_before_its_start_is_passed_on_as_it_is(world: World) -> None:
    _, submission = await world.ended("true")
    record = world.backend.record(submission, layout.EXIT)
    end = json.loads(record.read_text())
    times = {"started_at": "2026-11-30T08:20:10.000Z", "ended_at": "2026-11-30T08:14:55.000Z"}
    record.write_text(json.dumps(end | times))
    await world.watcher().look()
    (fact,) = await world.facts()
    assert fact.ended_at < fact.started_at


async def test_what_nobody_asked_for_is_told_too(world: World) -> None:
    request = await world.backend.request("j" + "1" * 26, "true")
    await world.backend.run(request)
    await world.watcher().look()
    (fact,) = await world.facts()
    assert (fact.job, fact.tenant) == ("j" + "1" * 26, "acme")


async def test_a_directory_that_cannot_be_read_says_nothing(world: World) -> None:
    job, _ = await world.launched("true")
    watcher = world.watcher(lambda: blind("open/ could not be read"))
    await watcher.handle(job.again())
    await watcher.look()
    assert await world.facts() == []


async def test_a_killed_supervisor_is_no_exit(world: World) -> None:
    _, submission = await world.launched(*FOREVER)
    await world.backend.until(submission, LocalState.RUNNING)
    os.kill(world.backend.supervisor_pid(submission), signal.SIGKILL)
    await world.backend.until(submission, LocalState.GONE)
    watcher = world.watcher()
    await watcher.look()
    assert await world.facts() == []
