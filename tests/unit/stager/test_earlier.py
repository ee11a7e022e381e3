"""What a later attempt finds in its working directory: the job's own state as it was left, or said what is not."""

import os
import shutil
import socket
from pathlib import Path

from services.stager.copying import Copying
from services.stager.copying import Limits as OutputLimits
from services.stager.domain import Stage
from services.stager.leases import Claim
from tests.unit.stager.archives import written
from tests.unit.stager.attempts import Job, tree


def test_files_modes_and_empty_folders_are_as_they_were_left(job: Job) -> None:
    here = job.staged()
    written(here, {"run.sh": "#!/bin/sh\n", "notes/a": "1", "empty": ""})
    (here / "run.sh").chmod(0o750)
    (here / "plots/new").mkdir(parents=True, mode=0o700)
    (here / "plots/new").chmod(0o2710)
    job.ended()
    again = job.staged()
    assert tree(again) == {"run.sh": "#!/bin/sh\n", "notes/a": "1", "empty": "", "plots/new": 0o710}
    assert (again / "run.sh").stat().st_mode & 0o777 == 0o750
    assert job.warnings == ()


def test_links_are_links_again_so_that_they_can_be_turned(job: Job) -> None:
    for step in range(1, 4):
        here = job.staged()
        written(here, {f"ckpt/{step}/w": str(step)})
        part = here / "part"
        part.symlink_to(f"ckpt/{step}")
        part.rename(here / "latest")
        if step == 1:
            (here / "ckpt/first").symlink_to(here / "ckpt/1/w")
        assert job.ended().outcome == "verified"
        assert {file.path for file in job.manifest().files} >= {"latest/w", "ckpt/first", f"ckpt/{step}/w"}
    again = job.staged()
    assert os.readlink(again / "latest") == "ckpt/3"
    assert os.readlink(again / "ckpt/first") == "../ckpt/1/w"
    assert tree(again) == {"latest/w": "3", "ckpt/first": "1", "ckpt/1/w": "1", "ckpt/2/w": "2", "ckpt/3/w": "3"}


def test_a_link_is_what_it_led_to_where_that_itself_did_not_come_back(job: Job) -> None:
    job.spec = job.spec.model_copy(update={"outputs": ("latest", "best.txt")})
    here = job.staged()
    written(here, {"ckpt/1/w": "1", "b": "2"})
    (here / "latest").symlink_to("ckpt/1")
    (here / "best.txt").symlink_to("b")
    job.ended()
    again = job.staged()
    assert tree(again) == {"latest/w": "1", "best.txt": "2"}
    assert not (again / "latest").is_symlink()


def test_links_to_nothing_and_to_folders_that_they_lie_in_are_links_again(job: Job, tmp_path: Path) -> None:
    source = written(tmp_path / "src", {"pkg/a": "1"})
    (source / "later").symlink_to("not/there-yet")
    job.submitted(source)
    here = job.staged()
    links = {"later": "not/there-yet", "pkg/self": ".", "pkg/top": "..", "locks/one": "host:4711"}
    (here / "locks").mkdir(mode=0o700)
    for path in ("pkg/self", "pkg/top", "locks/one"):
        (here / path).symlink_to(links[path])
    (here / "pkg/root").symlink_to(here)
    (here / os.fsdecode(b"\xff")).symlink_to("nothing")
    assert job.ended().outcome == "failed", "of that name no manifest can tell"
    here = job.staged()
    for _ in range(2):
        found = {str(path.relative_to(here)): os.readlink(path) for path in here.rglob("*") if path.is_symlink()}
        assert found == links | {"pkg/root": "../."}
        assert (here / "locks").stat().st_mode & 0o777 == 0o700
        assert (job.ended().outcome, job.result.message) == ("verified", None)
        here = job.staged()
        assert job.warnings == ()


def test_a_link_to_nothing_is_no_output(job: Job) -> None:
    (job.staged() / "model").symlink_to("gone")
    result = job.ended(succeeded=True)
    assert (result.outcome, result.message) == ("failed", "'model': it is a link to nothing")


def test_names_of_one_file_are_names_of_one_file_again_as_far_as_they_came_back(job: Job, tmp_path: Path) -> None:
    job.submitted(written(tmp_path / "src", {"a/one": "1", "two": "1"}))
    here = job.staged()
    (here / "two").unlink()
    written(here, {"b/alone": "2"})
    os.link(here / "a/one", here / "two")
    os.link(here / "a/one", here / "b/three")
    os.link(here / "b/alone", job.root / "elsewhere")
    assert job.ended().outcome == "verified"
    again = job.staged()
    assert len({(again / path).stat().st_ino for path in ("a/one", "two", "b/three")}) == 1
    assert (again / "b/alone").stat().st_nlink == 1
    (again / "two").write_text("all of them")
    job.ended()
    again = job.staged()
    assert tree(again) == {"a/one": "all of them", "two": "all of them", "b/three": "all of them", "b/alone": "2"}
    (again / "two").unlink()
    written(again, {"two": "its own"})
    job.ended()
    again = job.staged()
    assert tree(again) | {"two": "its own"} == tree(again)
    assert (again / "a/one").stat().st_nlink == 2


def test_what_is_said_to_be_one_file_and_has_other_content_is_none(job: Job) -> None:
    """A file that was written to between the copies of its two names."""
    written(job.staged(), {"a": "1", "b": "2"})
    job.ended()
    manifest = job.manifest()
    first, second = sorted(manifest.files, key=lambda file: file.path)
    job.store_manifest(
        manifest.model_copy(update={"files": (first, second.model_copy(update={"hard_link_of": first.path}))})
    )
    assert tree(job.staged()) == {"a": "1", "b": "2"}


def test_what_the_job_removed_or_renamed_stays_so_whoever_made_it(job: Job, tmp_path: Path) -> None:
    job.submitted(written(tmp_path / "src", {"a": "1", "old/b": "2", "keep": "3", "d/e": "4"}))
    step = _outputs_of_a_step(job, {"model/w": "5", "model/log": "6"})
    here = job.staged((step,))
    (here / "a").rename(here / "new")
    shutil.rmtree(here / "old")
    (here / "model/log").unlink()
    (here / "d/e").unlink()
    left = tree(here)
    assert left == {"new": "1", "keep": "3", "model/w": "5", "d": 0o755}
    job.ended()
    assert tree(job.staged((step,))) == left
    job.ended()
    assert tree(job.staged((step,))) == left


def test_what_no_pattern_names_is_as_it_was_submitted(job: Job, tmp_path: Path) -> None:
    job.spec = job.spec.model_copy(update={"outputs": ("model/**",)})
    job.submitted(written(tmp_path / "src", {"data": "1", "model/seed": "2"}))
    here = job.staged()
    (here / "data").unlink()
    (here / "model/seed").unlink()
    written(here, {"model/w": "3", "scratch": "4"})
    job.ended()
    assert tree(job.staged()) == {"data": "1", "model/w": "3"}


def test_sockets_and_pipes_are_left_out_of_a_pause_and_said_and_all_else_is_the_newest(job: Job) -> None:
    for round_ in "123":
        here = job.staged()
        assert tree(here) == ({} if round_ == "1" else {"book.ipynb": str(int(round_) - 1)})
        written(here, {"book.ipynb": round_})
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{(fd := os.open(here, os.O_RDONLY))}/kernel.sock")
            os.close(fd)
        os.mkfifo(here / "pipe")
        result = job.ended()
        assert (result.outcome, result.files) == ("verified", 1)
        assert "'kernel.sock': it is a named pipe, a socket or a device" in str(result.message)
    assert tree(job.staged()) == {"book.ipynb": "3"}
    assert "attempt 3 left more than came back: 'kernel.sock'" in job.warnings[0] or "'pipe'" in job.warnings[0]


def test_after_an_exit_code_of_0_they_fail_the_copy(job: Job) -> None:
    os.mkfifo(job.staged() / "pipe")
    assert job.ended(succeeded=True).outcome == "failed"


def test_a_file_whose_newest_copy_failed_is_as_the_attempt_before_left_it_and_that_is_said(job: Job) -> None:
    written(job.staged(), {"a": "1", "b": "1", "gone": "1"})
    job.ended()
    here = job.staged()
    written(here, {"a": "2", "b": "2", "new": "2"})
    (here / "gone").unlink()
    job.store.refuses = lambda key: key.endswith("/b")
    result = job.ended()
    assert (result.outcome, job.manifest().lost) == ("failed", ("b",))
    again = job.staged()
    assert tree(again) == {"a": "2", "b": "1", "new": "2"}, "what it had removed does not come back with it"
    assert job.warnings == (
        "attempt 2 left more than came back: 'b': the store did not take it: it is full",
        "as attempt 1 left them, as no later copy came back: 'b'",
    )
    job.ended()
    assert tree(job.staged()) == {"a": "2", "b": "1", "new": "2"}
    assert not job.warnings


def test_a_link_out_in_a_files_place_brings_no_older_file_back(job: Job) -> None:
    written(job.staged(), {"data": "old"})
    job.ended()
    here = job.staged()
    (here / "data").unlink()
    (here / "data").symlink_to("/etc/hostname")
    assert job.ended().outcome == "failed"
    assert tree(job.staged()) == {}
    assert "'data': it is a link and" in job.warnings[0]


def test_where_nothing_came_back_the_attempt_before_counts_and_that_is_said(job: Job) -> None:
    written(job.staged(), {"a": "1"})
    job.ended()
    written(job.staged(), {"a": "2"})
    job.store.refuses = lambda key: key.endswith("/a")
    assert (job.ended().outcome, job.result.manifest) == ("failed", None)
    assert tree(job.staged()) == {"a": "1"}
    assert job.warnings == ("nothing of what attempt 2 left could be copied back, so none of it is here",)


def test_a_copy_that_was_cut_short_takes_nothing_away(job: Job, tmp_path: Path) -> None:
    job.submitted(written(tmp_path / "src", {"s": "0"}))
    written(job.staged(), {f"f{n}": "1" for n in range(9)})
    job.ended()
    written(job.staged(), {f"f{n}": "2" for n in range(9)})
    job.limits = OutputLimits(3, 1 << 30)
    assert job.ended().outcome == "failed"
    found = tree(job.staged())
    assert set(found) == {"s", *(f"f{n}" for n in range(9))}
    assert sorted(map(str, found.values())).count("2") == job.result.files
    assert "name fewer, or pack them in the job" in job.warnings[0]


def test_a_submitted_file_whose_name_cannot_be_kept_is_there_again(job: Job, tmp_path: Path) -> None:
    source = written(tmp_path / "src", {"a": "1"})
    (source / os.fsdecode(b"caf\xe9")).write_text("2")
    job.submitted(source)
    here = job.staged()
    assert job.ended().outcome == "failed"
    assert job.manifest().lost == ("caf\\xe9",)
    assert tree(job.staged()) == tree(here) == {"a": "1", os.fsdecode(b"caf\xe9"): "2"}


def _outputs_of_a_step(job: Job, files: dict[str, str]) -> str:
    """The manifest of another job, a step before this one."""
    here = written(job.root / "work/step", files)
    claim = Claim(Stage.COPY_BACK, "j0", 1, "acme", "sha256:0", 1, 1, os.path.relpath(here, job.root), True)
    result = Copying(job.store, str(job.root), OutputLimits(100, 1 << 20)).run(
        claim, ("**",), lambda: None, last_try=True
    )
    assert result.manifest is not None
    return result.manifest
