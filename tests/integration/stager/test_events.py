"""Job events: repeated, late, out of order, contradicting work under way."""

import asyncio
import os
import time
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest

from services.stager.blobs import GoOn
from services.stager.copying import Copying
from services.stager.domain import Stage
from services.stager.facts import Result
from services.stager.leases import Claim, Leases
from services.stager.staging import Staging
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.runtime.migrate import differences
from tests.integration.stager.conftest import World, eventually, listing, now, tree
from tests.patience import PATIENCE_SECONDS
from tests.unit.stager.archives import archive, entry, link


async def rows(world: World) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(world.database.superuser_url)
    try:
        return list(await connection.fetch("SELECT * FROM stager.staging ORDER BY job, attempt"))
    finally:
        await connection.close()


def stop() -> i.Stop:
    return i.Stop(actor="rin", at=now())


async def test_the_tables_are_as_declared(world: World) -> None:
    assert await differences("stager", world.database.owner_url) == []


async def test_the_same_event_again_is_answered_with_the_same_facts_under_new_ids(world: World) -> None:
    world.applies = False
    async with world.stager():
        job = await world.submit("true")
        await world.told_of(job, "staged")
        for count in (2, 3):
            await world.publish(job)
            await world.told_of(job, "staged", count)
    first, *again = world.facts(job, "staged")
    assert again == [first, first]
    assert len(set(world.ids)) == len(world.ids)
    assert len(world.facts(job, "input_valid")) == 3


async def test_a_repeated_event_begins_nothing_twice(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"run.sh": "#!/bin/sh\n"}))
    job = world.record("sh", "run.sh", snapshot=digest, outputs=("x",))
    await world.publish_all([world.records[job]] * 20)
    async with world.stager():
        await world.told_of(job, "staged")
        await eventually(lambda: world.workdir(job).parent, "the directory")
        assert [path.name for path in world.workdir(job).parent.iterdir()] == ["e1"]
    versions = {fact.version.n for fact in world.facts(job, "staged")}
    assert len(versions) == 1


async def test_a_late_event_of_an_older_record_changes_nothing(world: World) -> None:
    job = world.record("true", outputs=("x",))
    early = world.records[job]
    async with world.stager():
        await world.publish(job)
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        count = len(world.told)
        await world.publish(job, record=early)
        other = await world.submit("true")
        await world.told_of(other, "staged")
        assert len([fact for fact in world.told if fact.job == job]) == count


async def test_a_stop_before_anything_was_staged_is_a_vote(world: World) -> None:
    job = world.record("true")
    world.apply(job, [stop()])
    async with world.stager():
        await world.publish(job, "desired")
        sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.staged, sealed.outcome) == (False, "none")
    assert world.records[job].state == "STOPPED"


async def test_a_directory_made_while_another_replica_voted_is_taken_away(world: World) -> None:
    job = world.record("true")
    early = world.records[job]
    world.apply(job, [stop()])
    async with world.stager():
        await world.publish(job, "desired")
        await world.told_of(job, "staging_sealed")
        directory = world.workdir(job, 1)
        directory.mkdir(parents=True)
        await world.publish(job, record=early)
        await eventually(lambda: not directory.exists(), "the directory to be taken away")


async def test_a_stop_while_staged_is_on_its_way_never_says_that_nothing_was_staged(world: World) -> None:
    """`api` has not seen `staged` when it asks for the vote."""
    world.applies = False
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        await world.move(job, stop())
        while len(world.facts(job, "staged")) < 2:  # in one batch with the event that it repeats, a question is none
            await world.publish(job, "desired")
            await asyncio.sleep(0.05)
        assert world.facts(job, "staging_sealed") == []
        world.applies = True
        await world.move(job, *world.facts(job, "input_valid")[:1], *world.facts(job, "staged")[:1])
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=False))
        sealed = await world.told_of(job, "staging_sealed")
        assert sealed.staged
    assert world.records[job].state == "STOPPED"


class Slowly:
    """Staging that takes as long as a test wants, at its end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        whole = Staging.run

        def slow(staging: Staging, *arguments: object) -> object:
            outcome = whole(staging, *arguments)  # type: ignore[arg-type] # passed on as they came
            loop.call_soon_threadsafe(self.begun.set)
            asyncio.run_coroutine_threadsafe(self.may_end.wait(), loop).result(PATIENCE_SECONDS)
            return outcome

        patch.setattr(Staging, "run", slow)


async def test_work_that_takes_longer_than_its_lease_keeps_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager(TIDEGATE_STAGING_LEASE_SECONDS="4") as service:
        job = await world.submit("true", snapshot=digest)
        await slowly.begun.wait()
        (first,) = await rows(world)

        async def renewed_beyond() -> bool:
            (row,) = await rows(world)
            assert row["lease_epoch"] == first["lease_epoch"], "it was taken away"
            return bool((row["deadline"] - first["deadline"]).total_seconds() > 4)

        await eventually(renewed_beyond, "the lease to be held beyond its first end")
        rival = Leases(service.db, service.clock, replica="rival", lease_seconds=1, epoch=lambda: 1)
        assert await rival.claim(Stage.STAGE_IN, 10) == []
        slowly.may_end.set()
        await world.told_of(job, "staged")


async def test_plain_jobs_do_not_wait_for_long_work(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager(TIDEGATE_STAGING_WORKERS="40"):
        long = [await world.submit("true", snapshot=digest) for _ in range(40)]
        await eventually(lambda: all(world.workdir(job, 1).exists() for job in long), "all workers to be busy")
        plain = await world.submit("true")
        await world.told_of(plain, "staged")
        assert not world.facts(long[0], "staged")
        slowly.may_end.set()
        await world.told_of(long[-1], "staged")


async def test_after_the_vote_work_under_way_publishes_nothing_and_is_cleared(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    slowly = Slowly(monkeypatch)
    async with world.stager():
        job = await world.submit("true", snapshot=digest)
        await slowly.begun.wait()
        await world.move(job, stop())
        await world.told_of(job, "staging_sealed")
        await eventually(lambda: world.workdir(job, 1).exists(), "the worker to be nearly done")
        slowly.may_end.set()
        await eventually(lambda: not world.workdir(job, 1).exists(), "its directory to be cleared")
    assert world.facts(job, "staged") == []
    (row,) = await rows(world)
    assert (row["stage"], row["directory"]) == ("sealed", None)


async def test_a_newer_attempt_ends_the_older_one(world: World) -> None:
    async with world.stager():
        world.answers_specs = False
        job = await world.submit("true")
        await eventually(lambda: has_rows(world, 1), "the first attempt's row")
        newer = world.records[job].model_copy(
            update={"attempt": 2, "attempts": (world.records[job].current.model_copy(update={"number": 2}),), "seq": 9}
        )
        world.answers_specs = True
        world.records[job] = newer
        await world.publish(job)
        staged = await world.told_of(job, "staged")
        assert staged.attempt == 2
    assert [(row["attempt"], row["stage"]) for row in await rows(world)] == [(1, "over"), (2, "sealed")]
    assert {fact.attempt for fact in world.told} == {2}


async def test_copies_of_a_job_that_is_deleted_meanwhile_are_cleared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loop, whole = asyncio.Event(), asyncio.get_running_loop(), Copying.run

    def endless(copying: Copying, claim: Claim, patterns: tuple[str, ...], go_on: GoOn, *, last_try: bool) -> Result:
        whole(copying, claim, patterns, go_on, last_try=last_try)
        loop.call_soon_threadsafe(begun.set)
        while True:
            go_on()
            time.sleep(0.01)

    monkeypatch.setattr(Copying, "run", endless)
    async with world.stager(TIDEGATE_STAGING_LEASE_SECONDS="1"):
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await begun.wait()
        assert listing(world.blobs / "acme/outputs")
        world.records[job] = world.records[job].model_copy(update={"deleted": True, "seq": 99})
        await world.publish(job, "deleted")
        copies = world.blobs / "acme/outputs"
        await eventually(lambda: not any(names for _, _, names in os.walk(copies)), "the copies to be cleared")


async def has_rows(world: World, count: int) -> bool:
    return len(await rows(world)) == count


async def test_a_deleted_jobs_outputs_are_not_shown_any_more(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
        assert world.records[job].state == "SUCCEEDED"
        assert await world.outputs(job) is not None
        await world.move(job, i.Delete(actor="rin", at=now()))

        async def hidden() -> bool:
            return await world.outputs(job) is None

        await eventually(hidden, "its outputs to be hidden")
    (row,) = await rows(world)
    assert row["deleted_at"] is not None


async def test_outputs_are_shown_to_their_tenant_only(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        await world.ran(job)
        await world.told_of(job, "staging_sealed")
        assert await world.outputs(job) is not None
        assert await world.outputs(job, tenant="rival") is None
        assert await world.outputs("j" + "0" * 26) is None


async def test_without_an_answer_from_api_staging_waits_and_goes_on(world: World) -> None:
    world.answers_specs = False
    async with world.stager():
        plain = await world.submit("true")
        await eventually(lambda: has_rows(world, 1), "the row")
        assert world.told == []
        world.answers_specs = True
        await world.told_of(plain, "staged")
    (row,) = await rows(world)
    assert (row["stage"], row["owner"]) == ("sealed", None)


async def test_bad_input_is_refused_with_all_findings_and_voted_on_at_once(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"train.py": "", "data.txt": ""}))
    async with world.stager():
        job = await world.submit("python3", "trian.py", snapshot=digest, inputs=("date.txt",))
        refused = await world.told_of(job, "input_invalid")
        await world.told_of(job, "staging_sealed")
    assert [(found.code, found.near) for found in refused.findings] == [
        ("input_missing", "data.txt"), ("script_not_found", "train.py"),
    ]  # fmt: skip
    record = world.records[job]
    assert (record.state, record.end_reason, record.failed_stage) == ("FAILED", "input_invalid", "validating_input")
    assert not world.workdir(job, 1).exists()


async def test_a_plain_job_whose_program_is_not_there_is_refused(world: World) -> None:
    async with world.stager():
        job = await world.submit("no-such-program-here")
        refused = await world.told_of(job, "input_invalid")
        await world.told_of(job, "staging_sealed")
    assert "no-such-program-here" in refused.findings[0].message


async def test_a_hostile_snapshot_is_refused_and_nothing_of_it_written(world: World, tmp_path: Path) -> None:
    content = archive(link("d", str(tmp_path)), entry("d/pwned", b"!"), entry("../../../../pwned", b"!")).read()
    digest = world.store_snapshot(content, "sha256:" + sha256(content).hexdigest())
    async with world.stager():
        job = await world.submit("true", snapshot=digest)
        refused = await world.told_of(job, "input_invalid")
    assert [found.place for found in refused.findings] == ["d/pwned", "../../../../pwned", "d"]
    assert not [name for name in listing(tmp_path) if name.endswith("pwned")]
    assert listing(world.root / "work") == {}


async def test_a_snapshot_of_another_tenant_is_not_there(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}), tenant="rival")
    async with world.stager():
        job = await world.submit("true", snapshot=digest)
        refused = await world.told_of(job, "input_invalid")
    assert refused.findings[0].code == "snapshot_missing"


async def test_a_snapshot_with_other_content_than_its_digest_is_never_staged(world: World, tmp_path: Path) -> None:
    digest = world.snapshot(tree(tmp_path / "src", {"f": "1"}))
    other = world.snapshot(tree(tmp_path / "other", {"f": "2"}))
    folder = world.blobs / "acme" / "snapshots"
    (folder / f"{other[7:]}.tar.gz").rename(folder / f"{digest[7:]}.tar.gz")
    async with world.stager(TIDEGATE_STAGING_TRIES="2"):
        job = await world.submit("true", snapshot=digest)
        failed = await world.told_of(job, "staging_failed")
        await world.told_of(job, "staging_sealed")
    assert "has other content" in failed.message
    assert (world.records[job].state, world.records[job].end_reason) == ("FAILED", "staging_failed")


@pytest.mark.parametrize(("code", "state"), [(0, "FAILED"), (3, "FAILED")])
async def test_absent_outputs_fail_a_job_that_exited_0_and_leave_another_end_as_it_is(
    world: World, code: int, state: str
) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("model/**", "log.txt"))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"log.txt": "half"})
        await world.ran(job, code)
        sealed = await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
        manifest = await world.outputs(job)
    assert manifest is not None
    assert [entry.path for entry in manifest.files] == ["log.txt"]
    record = world.records[job]
    assert record.state == state
    if code == 0:
        assert (sealed.outcome, sealed.missing, record.end_reason) == ("missing", ("model/**",), "outputs_missing")
    else:
        assert (sealed.outcome, sealed.missing, record.end_reason) == ("verified", (), "exit_nonzero")
    assert record.exit.code == code


@pytest.mark.parametrize(("code", "reason"), [(0, "copy_back_failed"), (3, "exit_nonzero")])
async def test_a_store_that_stays_away_never_hides_how_the_command_ended(world: World, code: int, reason: str) -> None:
    async with world.stager(TIDEGATE_STAGING_TRIES="2"):
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        world.blobs.rename(world.blobs.with_name("away"))
        world.blobs.write_text("not a directory")
        await world.ran(job, code)
        sealed = await world.told_of(job, "staging_sealed")
        await world.move(job, f.LauncherSealed(**world.heading(job, 20), ran=True))
    assert (sealed.outcome, sealed.manifest) == ("failed", None)
    assert "the store did not take it" in sealed.message
    record = world.records[job]
    assert (record.state, record.end_reason, record.exit.code) == ("FAILED", reason, code)
    if code != 0:
        assert "could not be copied back" in str(record.warnings)


async def test_a_transfer_is_tried_again_alone_until_the_store_is_back(world: World) -> None:
    async with world.stager():
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        world.blobs.rename(world.blobs.with_name("away"))
        world.blobs.write_text("not a directory")
        await world.ran(job)

        async def failed_once() -> bool:
            return any(row["tries"] >= 1 and row["owner"] is None for row in await rows(world))

        await eventually(failed_once, "the first try to fail")
        world.blobs.unlink()
        world.blobs.with_name("away").rename(world.blobs)
        sealed = await world.told_of(job, "staging_sealed")
    assert (sealed.outcome, sealed.files) == ("verified", 1)


async def test_an_attempt_whose_events_were_lost_is_asked_about(world: World) -> None:
    async with world.stager(TIDEGATE_STAGING_AUDIT_SECONDS="1"):
        job = await world.submit("true", outputs=("x",))
        await world.told_of(job, "staged")
        tree(world.workdir(job), {"x": "1"})
        segment = f.SegmentKey(submission="s", created_at=now())
        took = f.Accepted(**world.heading(job, 10), segment=segment, backend="local", cluster="local", ref="s")
        ended = f.Exited(**world.heading(job, 11), segment=segment, code=0, ended_at=now(), raw_state="exited")
        world.apply(job, [took, ended])
        sealed = await world.told_of(job, "staging_sealed")
    assert sealed.outcome == "verified"


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
