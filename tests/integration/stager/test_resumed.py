"""Resumed and retried attempts: staged into what the newest attempt that has any left, exactly once, whoever dies."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.contracts.ids import made_at_ms
from shared.contracts.queries import Manifest
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.states import State
from tests.integration.stager.conftest import World, eventually, listing, now, tree
from tests.integration.stager.test_events import rows
from tests.integration.stager.test_failpoints import Failpoints, only_what_counts_is_left, reaped
from tests.integration.stager.test_killed import Processes
from tests.integration.stager.test_steps import MODEL, Steps


@pytest.fixture
def failpoints(tmp_path: Path) -> Failpoints:
    return Failpoints(tmp_path / "failpoints")


@pytest.fixture
def processes(world: World, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(world, tmp_path)
    yield running
    running.stop()


async def pause(world: World, job: str) -> None:
    await world.move(job, i.Pause(actor="rin", at=now()))


async def paused(world: World, job: str, *, ran: bool) -> None:
    """It is being paused: its command has ended or never began, its outputs are copied, nothing of it is left."""
    voted = len(world.facts(job, "staging_sealed"))
    if ran:
        await world.ran(job)
        await world.told_of(job, "staging_sealed", voted + 1)
    await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=ran))
    await world.told_of(job, "staging_sealed", voted + 1)
    await eventually(lambda: world.records[job].state is State.PAUSED, "the job to be paused")


async def admitted(world: World, job: str) -> None:
    await world.move(job, f.Admitted(**world.heading(job, 30), admission=world.records[job].attempt))


async def resume(world: World, job: str) -> None:
    await world.move(job, i.Resume(actor="rin", at=now()))
    await admitted(world, job)


async def staged(world: World, job: str) -> Path:
    """The current attempt's working directory."""
    attempt = world.records[job].attempt
    await eventually(
        lambda: any(fact.attempt == attempt for fact in world.facts(job, "staged")), f"attempt {attempt} to be staged"
    )
    return world.workdir(job)


async def published(world: World) -> list[tuple[str, ...]]:
    """What counts of each attempt."""
    return [tuple(row[name] for name in ("stage", "directory", "manifest", "facts")) for row in await rows(world)]


async def shown(world: World, job: str) -> Manifest:
    manifest = await world.outputs(job)
    assert manifest is not None
    return manifest


async def test_resumed_it_finds_what_it_left_over_the_same_snapshot(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"train.py": "", "model/step": "0"}))
    async with world.stager():
        job = await world.submit("python3", "train.py", snapshot=digest, outputs=("model/**",))
        here = tree(await staged(world, job), {"model/step": "7", "scratch": ""})
        (here / "model").chmod(0o700)
        os.utime(here / "model/step", ns=(0, 10**18 + 7))
        os.link(here / "model/step", here / "model/best")
        (here / "model/self").symlink_to(".")
        await pause(world, job)
        await paused(world, job, ran=True)
        await resume(world, job)
        here = await staged(world, job)
        assert listing(here) == {"train.py": b"", "model/step": b"7", "model/best": b"7"}
        assert here.parent.name == "a2"
        assert ((here / "model/step").stat().st_mtime_ns, (here / "model").stat().st_mode & 0o777) == (
            10**18 + 7,
            0o700,
        )
        assert os.readlink(here / "model/self") == "."
        submitted = made_at_ms(job) * 10**6
        assert (here / "train.py").stat().st_mtime_ns == submitted, "older than whatever is made from it"
        assert (await shown(world, job)).attempt == 1, "while it runs those of the attempt before are shown"
        tree(here, {"model/step": "9"})
        await pause(world, job)
        await paused(world, job, ran=True)
        manifest = await shown(world, job)
        assert (manifest.attempt, world.content(manifest, "model/step")) == (2, b"9")
        await resume(world, job)
        assert listing(await staged(world, job)) == {"train.py": b"", "model/step": b"9", "model/best": b"9"}


@pytest.mark.parametrize("when", ["waits at a gate", "is staged"])
async def test_paused_before_it_ran_the_next_one_finds_what_the_attempt_before_it_left(world: World, when: str) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("**",))
        tree(await staged(world, job), {"a": "1"})
        await pause(world, job)
        await paused(world, job, ran=True)
        if when == "is staged":
            await resume(world, job)
            tree(await staged(world, job), {"b": "nobody ran in here"})
            await pause(world, job)
            await paused(world, job, ran=False)
        else:
            await world.move(job, i.Resume(actor="rin", at=now()))
            await pause(world, job)
            assert world.records[job].state is State.PAUSED
        await resume(world, job)
        here = await staged(world, job)
        assert (here.parent.name, listing(here)) == ("a3", {"a": b"1"})
        assert world.records[job].warnings == ()
        assert (await shown(world, job)).attempt == 1


async def test_a_pause_that_could_not_keep_all_says_so_and_its_resume_too(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("**",))
        here = await staged(world, job)
        tree(here, {"a": "1", os.fsdecode(b"\xff"): "x"})
        await pause(world, job)
        await paused(world, job, ran=True)
        assert "not UTF-8" in str(world.records[job].warnings)
        await resume(world, job)
        assert listing(await staged(world, job)) == {"a": b"1"}
        (warning,) = world.records[job].warnings
        assert warning.startswith("attempt 1 left more than came back: '\\xff': its name is not UTF-8")


async def test_killed_at_each_place_of_a_resumes_staging_it_ends_with_one_directory(
    world: World, processes: Processes, failpoints: Failpoints, tmp_path: Path
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"train.py": "", "model/old": "1"}))
    async with world.stager():
        job = await world.submit("true", snapshot=digest, outputs=("model/**",))
        here = await staged(world, job)
        (here / "model/old").unlink()
        tree(here, {"model/step": "7"})
        await pause(world, job)
        await paused(world, job, ran=True)
    environ = failpoints.environ()
    for point in ("copy.before", "copy.after", "rename.before", "rename.after"):
        failpoints.arm(point, "kill")
        process = processes.start(**environ)
        if world.records[job].attempt == 1:
            await resume(world, job)
        await failpoints.obeyed(point)
        await reaped(process)
        assert not [fact for fact in world.facts(job, "staged") if fact.attempt == 2]
    processes.start(**environ)
    assert listing(await staged(world, job)) == {"train.py": b"", "model/step": b"7"}
    await only_what_counts_is_left(world, job)


async def test_a_late_copy_of_an_earlier_attempt_replaces_nothing(
    world: World, processes: Processes, failpoints: Failpoints
) -> None:
    """Its stager is frozen while another copies, and the job is paused and resumed meanwhile."""
    first = processes.start(**failpoints.environ())
    job = await world.submit("true", outputs=("a",))
    tree(await staged(world, job), {"a": "1"})
    await pause(world, job)
    failpoints.arm("rename.before", "stop")
    await world.ran(job)
    assert await failpoints.obeyed("rename.before") == first.pid
    await world.leases_run_out()
    processes.start(**failpoints.environ(TIDEGATE_REPLICA="two"))
    await world.told_of(job, "staging_sealed")
    await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
    assert world.records[job].state is State.PAUSED
    await resume(world, job)
    here = await staged(world, job)
    tree(here, {"a": "2"})
    before = await published(world)
    first.send_signal(signal.SIGCONT)
    await eventually(lambda: not list((world.root / "staging").iterdir()), "what the frozen one left to be swept")
    assert await published(world) == before
    await pause(world, job)
    await paused(world, job, ran=True)
    manifest = await shown(world, job)
    assert (manifest.attempt, world.content(manifest, "a")) == (2, b"2")


async def test_a_failed_step_is_retried_in_the_outputs_of_those_before_it_and_its_own(world: World) -> None:
    async with world.stager():
        steps = Steps(world)
        first, here = await steps.staged("true", **MODEL)
        tree(here, {"model/data": "1", "model/raw": "1"})
        await steps.succeeds(first)
        job, here = await steps.staged("true", **MODEL)
        (here / "model/raw").unlink()
        tree(here, {"model/half": "2"})
        await world.ran(job, 1)
        await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
        assert world.records[job].state is State.FAILED
        await world.move(job, i.Retry(actor="rin", at=now()))
        await admitted(world, job)
        assert listing(await staged(world, job)) == {"model/data": b"1", "model/half": b"2"}


async def test_a_later_attempt_finds_the_outputs_of_the_one_before(world: World, tmp_path: Path) -> None:
    """Over the snapshot, and in place of what stands in their way there."""
    source = tree(tmp_path / "src", {"run.sh": "#!/bin/sh\n", "ckpt/step": "0", "state": "file"})
    (source / "latest").symlink_to("ckpt")
    digest = world.snapshot(source)
    async with world.stager():
        job = await world.submit("sh", "run.sh", snapshot=digest, outputs=("ckpt/**", "latest/**", "state/**"))
        await world.told_of(job, "staged")
        work = world.workdir(job)
        (work / "state").unlink()
        tree(work, {"ckpt/step": "7", "ckpt/w\n": "weights", "state/a": "1"})
        await world.ran(job, 1)
        await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
        await world.move(job, i.Retry(actor="rin", at=now()))
        await world.move(job, f.Admitted(**world.heading(job, 30), admission=2))
        await eventually(lambda: world.facts(job, "staged")[-1].attempt == 2, "the second attempt to be staged")
        assert listing(world.workdir(job)) == {
            "run.sh": b"#!/bin/sh\n", "ckpt/step": b"7", "ckpt/w\n": b"weights", "state/a": b"1",
            "latest/step": b"7", "latest/w\n": b"weights",
        }  # fmt: skip
        assert world.workdir(job).parent.name == "a2"
