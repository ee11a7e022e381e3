"""Input that is refused, and outputs that do not come back: what is told, and how the job ends."""

from hashlib import sha256
from pathlib import Path

import pytest

from shared.lifecycle import facts as f
from tests.integration.stager.conftest import World, eventually, listing, tree
from tests.integration.stager.test_events import rows
from tests.unit.stager.archives import archive, entry, link


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
