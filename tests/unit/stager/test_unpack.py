"""Unpacking: exact names, contents and modes, into the directory and nowhere else (C3, C9)."""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.stager.folders import close, submitted
from services.stager.unpack import unpack
from tests.unit.stager.archives import archive, entry, folder, link, listed, read_back

NOON = 1_796_040_000_123_000_000


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def unpacked(into: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    packed = archive(*entries)
    with opened(into) as fd:
        tree = listed(packed)
        unpack(packed, tree, NOON, fd, lambda: None)
        close(submitted(tree, NOON), fd, lambda: None)
    return into


def test_execute_bits_survive_and_setuid_does_not(tmp_path: Path) -> None:
    unpacked(
        tmp_path, entry("run.sh", b"1", mode=0o755), entry("data", b"2", mode=0o600), entry("su", b"3", mode=0o6755)
    )
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.iterdir()}
    assert modes == {"run.sh": 0o755, "data": 0o600, "su": 0o755}


def test_names_are_written_byte_for_byte(tmp_path: Path) -> None:
    names = ["a b", "  two", "x(1).dat", "it's", '"q"', "$HOME", "-rf", "a;b", "a*b", "café", "tab\tx", "line\nbreak"]
    names += ["100%20", os.fsdecode(b"latin-\xe9"), "x" * 255]
    unpacked(tmp_path, *(entry(name, name.encode("utf-8", "surrogateescape")) for name in names))
    assert read_back(tmp_path) == {os.fsencode(name): os.fsencode(name) for name in names}


def test_links_hard_links_and_empty_folders_are_made(tmp_path: Path) -> None:
    unpacked(
        tmp_path, folder("empty", 0o750), entry("a/f", b"1", mode=0o755), link("l", "a/f"), link("a/up", "../empty"),
        entry("h", kind=tarfile.LNKTYPE, target="a/f"), folder("closed", 0o500), entry("closed/x", b"2"),
    )  # fmt: skip
    assert (tmp_path / "l").read_bytes() == b"1"
    assert os.readlink(tmp_path / "a/up") == "../empty"
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "h").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "h").stat().st_nlink == 1, "a copy: the tenant's files share nothing"
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o500


def test_files_and_folders_have_the_one_time_they_are_given(tmp_path: Path) -> None:
    unpacked(tmp_path, entry("src/b/z.c", b"1"), entry("a", b"2"), entry("h", kind=tarfile.LNKTYPE, target="a"))
    assert {path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == {NOON}


def test_folders_have_their_modes_whatever_is_in_them(tmp_path: Path) -> None:
    unpacked(
        tmp_path, folder("private", 0o700), entry("private/key", b"1"), entry("private/in/x", b"2"),
        folder("shared", 0o3775), entry("shared/y", b"3"), folder("none", 0), entry("none/under/z", b"4"),
    )  # fmt: skip
    assert (tmp_path / "none").stat().st_mode & 0o7777 == 0
    (tmp_path / "none").chmod(0o700)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert modes == {"private": 0o700, "in": 0o755, "shared": 0o775, "none": 0o700, "under": 0o755}


def test_ends_when_it_is_told_to(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def go_on() -> None:
        raise Enough

    packed = archive(entry("a", b"1"))
    with opened(tmp_path) as fd, pytest.raises(Enough):
        unpack(packed, listed(packed), NOON, fd, go_on)
