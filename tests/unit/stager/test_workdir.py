"""The staging fence in the file system: a directory per lease, whole or not there, and never cleared under a claim."""

import os
from pathlib import Path

import pytest

from services.stager import workdir
from shared.backends.local import layout
from tests.unit.stager.archives import read_back, written


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layout.make_root(str(tmp_path / "local"))
    return tmp_path / "local"


def attempt(root: Path) -> Path:
    return Path(layout.attempt_directory(str(root), "acme", "j1", 1))


def stage(root: Path, epoch: int, name: str = "f") -> None:
    with workdir.making(str(root), "acme", "j1", 1, epoch) as fd:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        assert not (attempt(root) / f"e{epoch}").exists(), "nothing has the final name before it is whole"


def test_a_directory_gets_its_name_when_it_is_whole(root: Path) -> None:
    stage(root, 1)
    assert read_back(attempt(root)) == {b"e1/f": b""}


def test_a_directory_that_failed_leaves_nothing(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stage(root, 1, "folder-that-is-not-there/f")
    assert list(attempt(root).iterdir()) == []


def test_what_a_killed_lease_left_is_swept_by_the_next(root: Path) -> None:
    written(attempt(root), {"e1.part/half": "x", "e2/old": "x", "e7/newer": "x", "home/mine": "x", "eleven/x": "x"})
    stage(root, 3)
    assert set(read_back(attempt(root))) == {b"e3/f", b"e7/newer", b"home/mine", b"eleven/x"}


@pytest.mark.parametrize("claim", ["claim", "claim.1"])
def test_a_directory_that_holds_a_claim_is_never_cleared(root: Path, claim: str) -> None:
    written(attempt(root), {"e1/result": "precious", "e2.part/x": "x", claim: "{}"})
    stage(root, 3)
    workdir.sweep(str(root), "acme", "j1", 1, 99)
    assert set(read_back(attempt(root))) == {b"e1/result", b"e2.part/x", b"e3/f", claim.encode()}


def test_a_name_that_is_in_use_is_not_taken(root: Path) -> None:
    stage(root, 1)
    with pytest.raises(workdir.Taken):
        stage(root, 1, "other")
    assert read_back(attempt(root)) == {b"e1/f": b""}


def test_a_plain_directory_is_made_again_only_while_it_is_empty_and_unclaimed(root: Path) -> None:
    plain = (str(root), "acme", "j1", 1, 1)
    assert workdir.make_plain(*plain)
    assert workdir.make_plain(*plain)
    written(attempt(root), {"e1/result": "precious"})
    assert not workdir.make_plain(*plain)
    (attempt(root) / "e1/result").unlink()
    written(attempt(root), {"claim": "{}"})
    assert not workdir.make_plain(*plain)


def test_nobody_lists_or_enters_the_directories_before_the_launch(root: Path) -> None:
    stage(root, 1)
    for path in (attempt(root) / "e1", attempt(root), attempt(root).parent, attempt(root).parent.parent):
        assert path.stat().st_mode & 0o777 == 0o700
