"""Staging in and copying back on real stores, from job event to facts."""

from pathlib import Path

from tests.integration.stager.conftest import World, listing, tree


async def test_a_plain_job_is_valid_and_staged_in_one_go(world: World) -> None:
    async with world.stager():
        job = await world.submit("true")
        staged = await world.told_of(job, "staged")
        assert staged.nothing_to_copy
        assert world.facts(job, "input_valid")
        assert world.workdir(job) == world.workdir(job, 1)
        assert listing(world.workdir(job)) == {}


async def test_a_snapshot_is_staged_and_its_outputs_come_back(world: World, tmp_path: Path) -> None:
    source = tree(tmp_path / "src", {"train.py": "print(1)", "data/in.txt": "42"})
    (source / "train.py").chmod(0o755)
    async with world.stager():
        digest = world.snapshot(source)
        job = await world.submit("./train.py", snapshot=digest, inputs=("data/in.txt",), outputs=("model/**",))
        staged = await world.told_of(job, "staged")
        assert not staged.nothing_to_copy
        assert listing(world.workdir(job)) == {"train.py": b"print(1)", "data/in.txt": b"42"}
        tree(world.workdir(job), {"model/a": "abc", "model/b": ""})
        await world.ran(job)
        sealed = await world.told_of(job, "staging_sealed")
        assert (sealed.outcome, sealed.files, sealed.size_bytes, sealed.staged) == ("verified", 2, 3, True)
        manifest = await world.outputs(job)
        assert manifest is not None
        assert [(entry.path, entry.size_bytes) for entry in manifest.files] == [("model/a", 3), ("model/b", 0)]
        assert world.content(manifest, "model/a") == b"abc"
