"""Reading a hostile working directory: nothing outside of it is ever read, nothing but files is ever opened."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.stager.patterns import Patterns
from services.stager.walk import Found, Refused, Walk
from tests.unit.stager.archives import written


@contextmanager
def walking(root: Path, *patterns: str) -> Iterator[Walk]:
    walk = Walk(str(root), Patterns(patterns or ["**"]))
    try:
        yield walk
    finally:
        walk.close()


def contents(root: Path, *patterns: str) -> dict[str, bytes | str]:
    """What comes back: the bytes of files, the reason for what is refused."""
    found: dict[str, bytes | str] = {}
    with walking(root, *patterns) as walk:
        for item in walk:
            if isinstance(item, Refused):
                found[item.path] = item.why
            elif isinstance(item, Found):
                with open(walk.open_file(item), "rb") as file:
                    found[item.path] = file.read()
    return found


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return written(tmp_path / "outside", {"secret": "S3CRET"}) / "secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return written(tmp_path / "work", {"a": "1", "d/f": "2"})


def test_links_inside_come_back_as_what_they_point_to(root: Path) -> None:
    (root / "l").symlink_to("d/f")
    (root / "d/up").symlink_to("../a")
    (root / "latest").symlink_to("d")
    (root / "absolute").symlink_to(root / "d" / "f")
    assert contents(root) == {
        "a": b"1", "d/f": b"2", "d/up": b"1", "l": b"2", "latest/f": b"2", "latest/up": b"1", "absolute": b"2",
    }  # fmt: skip


@pytest.mark.parametrize(
    "target",
    ["{secret}", "../outside/secret", "../outside", "/etc", "d/../../outside/secret", "..", "/", "/proc/self/root"],
)  # fmt: skip
def test_links_out_are_refused_and_listed(root: Path, secret: Path, target: str) -> None:
    (root / "l").symlink_to(target.format(secret=secret))
    found = contents(root)
    assert isinstance(found.pop("l"), str)
    assert found == {"a": b"1", "d/f": b"2"}


def test_a_link_out_through_a_link_inside_is_refused(root: Path, secret: Path) -> None:
    (root / "x/y").mkdir(parents=True)
    (root / "x/y/up").symlink_to("../..")
    (root / "l").symlink_to("x/y/up/../outside/secret")
    found = contents(root, "l")
    assert "leads above" in str(found["l"])


def test_a_link_to_nothing_is_listed(root: Path) -> None:
    (root / "l").symlink_to("gone")
    assert contents(root, "l") == {"l": "it is a link to nothing"}


def test_links_that_run_in_a_circle_end(root: Path) -> None:
    (root / "d/self").symlink_to(".")
    (root / "d/top").symlink_to("..")
    (root / "e").mkdir()
    (root / "d/e").symlink_to("../e")
    (root / "e/d").symlink_to("../d")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    found = contents(root)
    assert len(found) < 40
    assert "link to a folder that it lies in" in str(found["d/self"])
    assert "circle" in str(found["one"])
    assert found["e/d/f"] == b"2"


def test_pipes_sockets_and_devices_are_refused_without_opening_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "pipe")
    (root / "to-pipe").symlink_to("pipe")
    if os.geteuid() == 0:
        os.mknod(root / "null", 0o020666, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(root)  # a socket's path may have 107 bytes
        listening.bind("s")
        found = contents(root)
    refused = {path for path, why in found.items() if why == "it is a named pipe, a socket or a device"}
    assert refused >= {"pipe", "to-pipe", "s"}
    assert ("null" in refused) == (os.geteuid() == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of somebody else")
def test_a_hard_link_to_somebody_elses_file_is_refused(root: Path, secret: Path) -> None:
    for path in (root, root / "a"):
        os.chown(path, 12345, 12345)
    os.link(secret, root / "stolen")
    os.link(root / "a", root / "own")
    found = contents(root, "stolen", "own")
    assert found == {"stolen": "it is a hard link to a file of somebody else", "own": b"1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of somebody else")
def test_a_file_swapped_for_a_hard_link_to_somebody_elses_is_not_read(root: Path, secret: Path) -> None:
    for path in (root, root / "a"):
        os.chown(path, 12345, 12345)
    with walking(root) as walk:
        found = the_file(walk, "a")
        (root / "a").unlink()
        os.link(secret, root / "a")
        with pytest.raises(OSError, match="somebody else"):
            walk.open_file(found)


def test_names_that_are_not_utf8_are_refused_escaped(root: Path) -> None:
    for raw in (b"caf\xe9", b"dir-\xff/x"):
        path = os.path.join(os.fsencode(root), raw)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass
    with walking(root) as walk:
        refused = [item for item in walk if isinstance(item, Refused)]
    assert {os.fsencode(item.path) for item in refused} == {b"caf\xe9", b"dir-\xff"}
    assert all("not UTF-8" in item.why for item in refused)


def the_file(walk: Walk, path: str) -> Found:
    return next(item for item in walk if isinstance(item, Found) and item.path == path)


def test_a_file_swapped_for_a_link_is_not_read(root: Path, secret: Path) -> None:
    with walking(root) as walk:
        found = the_file(walk, "a")
        (root / "a").unlink()
        (root / "a").symlink_to(secret)
        with pytest.raises(OSError, match="a link that was put there"):
            walk.open_file(found)


def test_a_folder_swapped_for_a_link_is_not_entered(root: Path, secret: Path) -> None:
    written(root, {"d/secret": "mine"})
    with walking(root) as walk:
        found = the_file(walk, "d/secret")
        (root / "d").rename(root / "moved")
        (root / "d").symlink_to(secret.parent)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            walk.open_file(found)


def test_a_folder_swapped_before_it_is_read_is_not_entered(root: Path, secret: Path) -> None:
    with walking(root) as walk:
        items = iter(walk)
        seen = [next(items)]
        (root / "d").rename(root.parent / "moved")
        (root / "d").symlink_to(secret.parent)
        seen += list(items)
    assert not any(isinstance(item, Found) and "secret" in item.path for item in seen)


def test_a_file_swapped_for_a_pipe_is_not_waited_for(root: Path) -> None:
    with walking(root) as walk:
        found = the_file(walk, "a")
        (root / "a").unlink()
        os.mkfifo(root / "a")
        with pytest.raises(OSError, match="a named pipe"):
            walk.open_file(found)


def nested(root: Path, name: str, depth: int) -> None:
    """Folders in folders, deeper than a path could say."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_folders_are_walked_to_a_depth_and_what_lies_deeper_is_listed(root: Path) -> None:
    nested(root, "n", 127)
    assert contents(root, "n") == {"n/" * 127 + "leaf": b""}
    nested(root, "m", 400)
    (root / "l").symlink_to("/".join(["m"] * 300))
    found = contents(root, "m", "l")
    assert "more than 128 folders deep" in str(found["m/" * 128 + "m"])
    assert "more than 128 folders deep" in str(found["l"])


def test_a_path_that_is_too_long_is_listed(root: Path) -> None:
    nested(root, "n" * 200, 25)
    assert "longer than 4095 bytes" in str(list(contents(root, "n*").values()))
