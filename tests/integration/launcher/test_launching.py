"""Handing attempts to the real backend, once each."""

from shared.backends.local.messages import LaunchAnswer, LaunchRequest
from shared.lifecycle.facts import Accepted, LauncherSealed, LaunchRefused
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import State
from shared.runtime.errors import RpcUnavailable
from tests.integration.launcher.world import World, kinds


async def test_a_staged_job_is_launched_and_accepted(world: World) -> None:
    job = await world.job()
    await world.launcher().launch(job.again())
    (fact,) = await world.facts(job)
    assert isinstance(fact, Accepted)
    assert (fact.backend, fact.cluster, fact.ref) == ("local", "local", world.submission(job))
    assert job.record.state is State.PENDING
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_a_job_sees_its_identity_and_its_own_variables_but_cannot_say_who_it_is(world: World) -> None:
    job = await world.job("sh", "-c", "env > seen", env={"WORD": "hello", "TIDEGATE_TENANT": "somebody-else"})
    await world.launcher().launch(job.again())
    await world.until_ended(job)
    here = world.backend.root / job.directory
    seen = dict(line.split("=", 1) for line in (here / "seen").read_text().splitlines())
    assert seen["WORD"] == "hello"
    assert seen["TIDEGATE_JOB_ID"] == seen["TIDEGATE_RUN_ID"] == job.id
    assert (seen["TIDEGATE_ATTEMPT"], seen["TIDEGATE_TENANT"]) == ("1", "acme")
    assert seen["TIDEGATE_OUTPUT_DIR"] == seen["PWD"] == str(here)


async def test_a_batch_is_one_question_to_the_api_and_one_to_the_backend(world: World) -> None:
    calls: list[int] = []

    class Counting(type(world.backend.client)):  # type: ignore[misc] # the class of the real client
        async def launch(self, requests: list[LaunchRequest]) -> list[LaunchAnswer]:
            calls.append(len(requests))
            answers: list[LaunchAnswer] = await super().launch(requests)
            return answers

    jobs = [await world.job() for _ in range(30)]
    await world.launcher(backend=Counting(world.backend.root)).launch(*(job.again() for job in jobs))
    assert calls == [30]
    assert len(world.asked) == 1
    assert kinds(await world.facts(*jobs)) == ["accepted"] * 30
    await world.until_ended(*jobs)
    assert [world.ledger(job) for job in jobs] == [[job.id] for job in jobs]


async def test_delivered_twice_it_runs_once_and_the_second_delivery_is_answered(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    await launcher.launch(job.again())
    await launcher.launch(job.again())
    await launcher.launch(job.again())
    rows = await world.database.fetch("SELECT msg_id FROM outbox ORDER BY id")
    ids = [row["msg_id"] for row in rows]
    assert len(ids) == len(set(ids)) == 3
    assert [msg_id.partition("/again.")[2] for msg_id in ids] == ["", "1", "2"]
    first, *again = await world.facts(job)
    assert all(fact == first for fact in again)
    await world.until_ended(job)
    assert world.ledger(job) == [job.id]


async def test_an_older_event_that_comes_late_does_nothing(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    old = job.again()
    await launcher.end(job.stop())
    assert kinds(await world.facts(job)) == ["gpus_freed", "launcher_sealed"]
    await launcher.launch(old)
    assert await world.facts(job) == []
    assert (await world.row(job))["state"] == "sealed"
    assert world.ledger(job) == []


async def test_the_newest_of_one_batch_decides_whatever_its_order(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()
    old = job.again()
    await launcher.handle(job.stop(), old)
    await launcher.launch()
    await launcher.end()
    assert kinds(await world.facts(job)) == ["gpus_freed", "launcher_sealed"]
    assert world.ledger(job) == []


async def test_more_gpus_than_the_machine_has_are_refused_and_the_attempt_is_sealed(world: World) -> None:
    job = await world.job(gpus=9)
    launcher = world.launcher()
    await launcher.launch(job.again())
    await launcher.end()
    refused, freed, sealed = await world.facts(job)
    assert isinstance(refused, LaunchRefused)
    assert "needs 9 GPUs; this machine has 8" in refused.message
    assert freed.kind == "gpus_freed"
    assert isinstance(sealed, LauncherSealed)
    assert not sealed.ran
    assert (job.record.state, job.record.end_reason) == (State.FAILED, EndReason.LAUNCH_REFUSED)


async def test_busy_gpus_are_asked_for_again_until_they_are_free(world: World) -> None:
    first = await world.job("sh", "-c", "while [ ! -e go ]; do sleep 0.01; done", gpus=8)
    second = await world.job(*("sh", "-c", "echo $TIDEGATE_JOB_ID >> ledger"), gpus=8)
    launcher = world.launcher()
    await launcher.launch(first.again())
    await launcher.launch(second.again())
    assert kinds(await world.facts(second)) == []
    row = await world.row(second)
    assert row["state"] == "intent"
    assert "needs 8 GPUs; 0 of 8 are free" in row["waits_for"]
    (world.backend.root / first.directory / "go").touch()
    await world.until_ended(first)
    while not (told := await world.facts(second)):
        await launcher.launching.once()
    assert kinds(told) == ["accepted"]
    await world.until_ended(second)
    assert world.ledger(second) == [second.id]


async def test_a_job_waits_while_the_api_does_not_tell_its_spec(world: World) -> None:
    job = await world.job()
    launcher = world.launcher()

    async def nobody(question: object) -> None:
        raise RpcUnavailable("nobody answers")

    ask, launcher.launching._specs._ask = launcher.launching._specs._ask, nobody  # type: ignore[assignment]
    await launcher.launch(job.again())
    assert (await world.row(job))["state"] == "intent"
    launcher.launching._specs._ask = ask
    while not (told := await world.facts(job)):
        await launcher.launching.once()
    assert kinds(told) == ["accepted"]


async def test_a_job_whose_spec_nobody_knows_is_refused_with_the_reason(world: World) -> None:
    job = await world.job()
    world.specs.clear()
    launcher = world.launcher()
    await launcher.launch(job.again())
    await launcher.end()
    told = await world.facts(job)
    assert kinds(told) == ["launch_refused", "gpus_freed", "launcher_sealed"]
    assert job.record.message is not None
    assert "submit the job again" in job.record.message
