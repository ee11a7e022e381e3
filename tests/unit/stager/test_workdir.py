"""The staging fence in the file system: a directory per lease, whole or not there, and never cleared under a claim."""

import os
from pathlib import Path

import pytest

from services.stager import workdir
from services.stager.marks import Mark
from shared.backends.local import layout
from tests.unit.stager.archives import read_back, written


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layout.make_root(str(tmp_path / "local"))
    return tmp_path / "local"


def attempt(root: Path) -> Path:
    return Path(layout.attempt_directory(str(root), "acme", "j1", 1))


def stage(root: Path, epoch: int, name: str = "f") -> None:
    with workdir.making(str(root), "acme", "j1", 1, Mark(1, epoch)) as fd:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        assert not (attempt(root) / f"e{epoch}").exists(), "nothing has the final name before it is whole"


def test_a_directory_gets_its_name_when_it_is_whole(root: Path) -> None:
    stage(root, 1)
    assert read_back(attempt(root)) == {b"e1/f": b""}


def test_a_directory_that_failed_leaves_nothing(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stage(root, 1, "folder-that-is-not-there/f")
    assert list(attempt(root).iterdir()) == []


def test_what_was_staged_with_closed_folders_goes_as_well(root: Path) -> None:
    """Whoever staged it may be its owner and no more."""
    written(attempt(root), {"e1.part/closed/deep/x": "x", "e2/closed/y": "x"})
    for path in ("e1.part/closed/deep", "e1.part/closed", "e2/closed"):
        (attempt(root) / path).chmod(0)
    discard(root, 2, None)
    stage(root, 3)
    assert set(read_back(attempt(root))) == {b"e3/f"}


def test_what_a_killed_lease_left_is_swept_by_the_next(root: Path) -> None:
    written(attempt(root), {"e1.part/half": "x", "e2/old": "x", "e7/newer": "x", "home/mine": "x", "eleven/x": "x"})
    stage(root, 3)
    assert set(read_back(attempt(root))) == {b"e3/f", b"e7/newer", b"home/mine", b"eleven/x"}


def discard(root: Path, lease: int, published: str | None, *, lost_time: bool = False) -> None:
    named = None if published is None else f"work/acme/j1/a1/{published}"
    workdir.discard(str(root), "acme", "j1", 1, Mark(1, lease), named, lost_time=lost_time)


@pytest.mark.parametrize("claim", ["claim", "claim.1"])
def test_nothing_is_staged_for_an_attempt_that_holds_a_claim_and_nothing_in_it_is_cleared(
    root: Path, claim: str
) -> None:
    files: dict[str, str | bytes] = {"e1/result": "precious", "e2.part/x": "x", claim: "{}"}
    written(attempt(root), files)
    with pytest.raises(workdir.Claimed) as ran:
        stage(root, 3)
    assert ran.value.directory is None, "this claim does not tell where the command ran"
    assert set(read_back(attempt(root))) == {name.encode() for name in files}


def test_a_claim_tells_where_the_command_ran(root: Path) -> None:
    written(attempt(root), {"e1/result": "precious", "claim": '{"submission": "s1"}'})
    written(root, {"open/s1.spec.json": '{"directory": "e1"}'})
    with pytest.raises(workdir.Claimed) as ran:
        stage(root, 2)
    assert ran.value.directory == "work/acme/j1/a1/e1"


def test_what_a_dead_lease_left_is_removed_and_what_is_published_is_not(root: Path) -> None:
    written(attempt(root), {"e1.part/x": "x", "e1/x": "x", "e2/x": "x"})
    discard(root, 2, "e2")
    assert set(read_back(attempt(root))) == {b"e1.part/x", b"e1/x", b"e2/x"}
    discard(root, 1, "e2")
    discard(root, 1, "e2")
    assert set(read_back(attempt(root))) == {b"e2/x"}


def test_under_a_claim_only_what_the_command_cannot_have_run_in_is_removed(root: Path) -> None:
    files: dict[str, str | bytes] = {"e1.part/x": "x", "e1/x": "x", "e2/x": "x", "claim": "{}"}
    written(attempt(root), files)
    discard(root, 1, None)
    assert set(read_back(attempt(root))) == {b"e1/x", b"e2/x", b"claim"}
    discard(root, 1, "e2", lost_time=True)
    assert set(read_back(attempt(root))) == {b"e1/x", b"e2/x", b"claim"}
    discard(root, 1, "e2")
    assert set(read_back(attempt(root))) == {b"e2/x", b"claim"}


def test_directories_of_later_epochs_have_other_names(root: Path) -> None:
    assert [str(Mark(1, 3)), str(Mark(2, 3))] == ["e3", "e2.3"]
    assert [Mark.read("e3"), Mark.read("e2.3"), Mark.read("e2.part")] == [Mark(1, 3), Mark(2, 3), None]
    stage(root, 7)
    with workdir.making(str(root), "acme", "j1", 1, Mark(2, 1)):
        pass
    assert [path.name for path in attempt(root).iterdir()] == ["e2.1"], "it is the higher one, and sweeps"


def test_a_name_that_is_in_use_is_not_taken(root: Path) -> None:
    stage(root, 1)
    with pytest.raises(workdir.Taken):
        stage(root, 1, "other")
    assert read_back(attempt(root)) == {b"e1/f": b""}


def test_a_plain_directory_is_made_again_only_while_it_is_empty_and_unclaimed(root: Path) -> None:
    plain = (str(root), "acme", "j1", 1, Mark(1, 1))
    assert workdir.make_plain(*plain)
    assert workdir.make_plain(*plain)
    written(attempt(root), {"e1/result": "precious"})
    assert not workdir.make_plain(*plain)
    (attempt(root) / "e1/result").unlink()
    written(attempt(root), {"claim": "{}"})
    assert not workdir.make_plain(*plain)


def ran_in(root: Path, directory: str) -> None:
    written(attempt(root), {"claim": '{"submission": "s1"}'})
    written(root / "open", {"s1.spec.json": f'{{"directory": "{directory}"}}'})


def test_no_plain_directory_stays_beside_that_of_the_run(root: Path) -> None:
    written(attempt(root), {"e1/result": "precious"})
    (attempt(root) / "e2.1").mkdir()  # by a stager that was killed while the command began
    ran_in(root, "e1")
    assert not workdir.make_plain(str(root), "acme", "j1", 1, Mark(2, 1))
    assert not (attempt(root) / "e2.1").exists()
    assert workdir.make_plain(str(root), "acme", "j1", 2, Mark(2, 1))


def test_the_plain_directory_of_the_run_stays(root: Path) -> None:
    (attempt(root) / "e2.1").mkdir(parents=True)
    ran_in(root, "e2.1")
    assert not workdir.make_plain(str(root), "acme", "j1", 1, Mark(2, 1))
    assert (attempt(root) / "e2.1").exists()


def test_under_a_claim_what_the_lost_time_staged_is_removed_where_the_run_is_known_to_be_elsewhere(root: Path) -> None:
    written(attempt(root), {"e1/x": "x", "e2/result": "precious"})
    ran_in(root, "e2")
    discard(root, 2, "e7", lost_time=True)
    assert set(read_back(attempt(root))) == {b"e1/x", b"e2/result", b"claim"}
    discard(root, 1, "e7", lost_time=True)
    assert set(read_back(attempt(root))) == {b"e2/result", b"claim"}


def test_nobody_lists_or_enters_the_directories_before_the_launch(root: Path) -> None:
    stage(root, 1)
    for path in (attempt(root) / "e1", attempt(root), attempt(root).parent, attempt(root).parent.parent):
        assert path.stat().st_mode & 0o777 == 0o700
