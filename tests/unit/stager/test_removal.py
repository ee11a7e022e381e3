"""Removing what a job has left, however it left it."""

import os
from pathlib import Path

import pytest

from services.stager.removal import is_fence, remove_attempts
from tests.unit.stager.archives import written

ALL = 1_000_000


def keep_nothing(name: str) -> bool:
    return False


@pytest.fixture
def job(tmp_path: Path) -> Path:
    files = {"claim": "{}", "claim.1": "{}", "revoked": "", "e1/model/a": "1", "home/.cache/b": "2", "logs/stdout": "3"}
    return written(tmp_path / "work/acme/j1", {f"a1/{name}": text for name, text in files.items()})


def test_what_fences_an_attempt_stays_at_first_and_goes_in_the_end(job: Path) -> None:
    written(job, {"a2/e1/x": "never ran"})
    assert remove_attempts(str(job), is_fence, ALL)
    assert sorted(str(path.relative_to(job)) for path in job.rglob("*")) == [
        "a1",
        "a1/claim",
        "a1/claim.1",
        "a1/revoked",
    ]
    assert remove_attempts(str(job), keep_nothing, ALL)
    assert not job.exists()
    assert job.parent.exists()
    assert remove_attempts(str(job), keep_nothing, ALL), "once more is no error"


def test_in_pieces_all_of_it_goes(job: Path) -> None:
    written(job, {f"a1/e1/d{n}/f": "x" for n in range(20)})
    pieces = 1
    while not remove_attempts(str(job), keep_nothing, 7):
        pieces += 1
    assert not job.exists()
    assert pieces > 5


def test_links_are_removed_and_not_followed(job: Path, tmp_path: Path) -> None:
    outside = written(tmp_path / "outside", {"precious": "1", "d/e": "2"})
    for name in ("a1/e1/l", "a1/m"):
        (job / name).symlink_to(outside)
    (job / "a1/e1/f").symlink_to(outside / "precious")
    os.mkfifo(job / "a1/e1/pipe")
    assert remove_attempts(str(job), keep_nothing, ALL)
    assert not job.exists()
    assert sorted(path.name for path in outside.rglob("*")) == ["d", "e", "precious"]


def test_no_depth_is_too_deep_and_no_folder_too_closed(job: Path) -> None:
    here = os.open(job / "a1/e1", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", 0o700, dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0)
        os.close(here)
        here = inner
    os.close(here)
    assert remove_attempts(str(job), keep_nothing, ALL)
    assert not job.exists()
