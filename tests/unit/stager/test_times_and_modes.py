"""What a suspended workspace looks like when it is resumed: times and modes of files and folders."""

import os
import subprocess
from pathlib import Path

from shared.contracts.queries import Manifest
from tests.unit.stager.archives import written
from tests.unit.stager.attempts import SUBMITTED, Job

SUBMITTED_NS = int(SUBMITTED.timestamp()) * 10**9
LONG_AGO_NS = 10**18 + 123_456_789


def times(here: Path) -> dict[str, int]:
    return {str(path.relative_to(here)): path.stat().st_mtime_ns for path in here.rglob("*")}


def modes(here: Path) -> dict[str, int]:
    return {str(path.relative_to(here)): path.stat().st_mode & 0o7777 for path in here.rglob("*")}


def make(here: Path, *options: str) -> int:
    return subprocess.run(["make", *options], cwd=here, check=False, capture_output=True).returncode


def test_a_project_that_was_made_need_not_be_made_again_and_is_when_a_source_changes(job: Job, tmp_path: Path) -> None:
    rules = "all: out/prog\nout/prog: src/z.c lib/a.h\n\tmkdir -p out && cat src/z.c lib/a.h > out/prog\n"
    job.submitted(written(tmp_path / "src", {"Makefile": rules, "src/z.c": "1", "lib/a.h": "2"}))
    here = job.staged()
    assert make(here, "-q") == 1
    assert make(here) == 0
    for _ in range(2):
        assert job.ended().outcome == "verified"
        here = job.staged()
        assert make(here, "-q") == 0, "nothing is to be done"
    (here / "src/z.c").write_text("3")
    assert make(here, "-q") == 1


def test_what_is_made_is_newer_than_what_was_submitted_where_only_that_comes_back(job: Job, tmp_path: Path) -> None:
    job.spec = job.spec.model_copy(update={"outputs": ("out/**",)})
    job.submitted(written(tmp_path / "src", {"a.c": "1", "out/old": "2"}))
    here = job.staged()
    assert set(times(here).values()) == {SUBMITTED_NS}
    written(here, {"out/prog": "3"})
    made = times(here)["out/prog"]
    job.ended()
    assert times(job.staged()) | {"out": 0} == {
        "a.c": SUBMITTED_NS, "out": 0, "out/old": SUBMITTED_NS, "out/prog": made,
    }  # fmt: skip
    assert made > SUBMITTED_NS


def test_nothing_submitted_is_from_the_future_of_the_clusters_clock(job: Job, tmp_path: Path) -> None:
    job.id = "j7" + job.id[2:]
    job.submitted(written(tmp_path / "src", {"a.c": "1"}))
    here = job.staged()
    written(here, {"prog": "2"})
    assert times(here)["a.c"] <= times(here)["prog"]


def test_times_and_modes_are_as_they_were_left_to_the_nanosecond(job: Job) -> None:
    here = job.staged()
    written(here, {"private/key": "1", "private/in/deep": "2", "closed/f": "3"})
    (here / "empty").mkdir()
    for path, mode in {
        "private": 0o700,
        "private/in": 0o3775,
        "closed": 0o500,
        "empty": 0o555,
        "closed/f": 0o400,
    }.items():
        (here / path).chmod(mode)
    for number, path in enumerate(sorted(times(here), reverse=True)):
        os.utime(here / path, ns=(0, LONG_AGO_NS + number))
    left = times(here), {path: mode & 0o777 for path, mode in modes(here).items()}
    for _ in range(2):
        job.ended()
        again = job.staged()
        assert (times(again), modes(again)) == left
    assert job.warnings == ()


def test_a_folder_is_as_the_newest_left_it_also_where_it_was_submitted(job: Job, tmp_path: Path) -> None:
    source = written(tmp_path / "src", {"a/b": "1", "data/c": "2"})
    (source / "a").chmod(0o750)
    (source / "data").chmod(0o770)
    job.submitted(source)
    job.spec = job.spec.model_copy(update={"outputs": ("a/**", "**/*.json")})
    for mode in (0o700, 0o711):
        here = job.staged()
        for folder in ("a", "data"):
            (here / folder).chmod(mode)
        job.ended()
        found = modes(job.staged())
        assert (found["a"], found["data"]) == (mode, 0o770), "of `data` no pattern names anything"
        job.ended()


def test_a_link_in_a_folders_place_changes_nothing_where_it_leads(job: Job, tmp_path: Path) -> None:
    source = written(tmp_path / "src", {"data/c": "1"})
    (source / "data").chmod(0o750)
    job.submitted(source)
    here = job.staged()
    (here / "data").rename(here / "elsewhere")
    (here / "data").symlink_to(".")
    job.ended()
    again = job.staged()
    assert os.readlink(again / "data") == "."
    assert (again.stat().st_mode & 0o7777, modes(again)["elsewhere"]) == (0o700, 0o750)


def test_no_bit_but_those_of_permission_is_taken_over(job: Job) -> None:
    written(job.staged(), {"d/a": "1"})
    job.ended()
    manifest = job.manifest()
    every = [
        [entry.model_copy(update={"mode": 0o7777}) for entry in entries]
        for entries in (manifest.files, manifest.folders)
    ]
    job.store_manifest(manifest.model_copy(update={"files": tuple(every[0]), "folders": tuple(every[1])}))
    assert modes(job.staged()) == {"d": 0o777, "d/a": 0o777}


def test_folders_that_a_link_leads_to_keep_theirs(job: Job) -> None:
    here = job.staged()
    written(here, {"ckpt/3/w": "1"})
    (here / "ckpt/3").chmod(0o700)
    (here / "latest").symlink_to("ckpt/3")
    job.ended()
    again = job.staged()
    assert os.readlink(again / "latest") == "ckpt/3"
    assert modes(again)["ckpt/3"] == 0o700


def test_a_time_that_nobody_knows_or_could_store_is_that_of_the_submission(job: Job) -> None:
    here = job.staged()
    written(here, {"d/a": "1", "far": "2"})
    os.utime(here / "far", ns=(0, 10**19))
    job.ended()
    manifest = job.manifest()
    assert {file.path: file.modified_ns for file in manifest.files}["far"] is None
    older = manifest.model_dump(mode="json", exclude={"folders": True, "files": {"__all__": {"modified_ns"}}})
    job.store_manifest(Manifest.model_validate(older))
    again = job.staged()
    found = times(again)
    assert (found["d/a"], found["far"]) == (SUBMITTED_NS, SUBMITTED_NS)
