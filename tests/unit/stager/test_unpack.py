"""Unpacking: exact names, contents and modes, into the directory and nowhere else (C3, C9)."""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.stager.unpack import unpack
from tests.unit.stager.archives import archive, entry, folder, link, listed, read_back


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
        unpack(packed, listed(packed), fd, lambda: None)
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
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o700


def test_ends_when_it_is_told_to(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def go_on() -> None:
        raise Enough

    packed = archive(entry("a", b"1"))
    with opened(tmp_path) as fd, pytest.raises(Enough):
        unpack(packed, listed(packed), fd, go_on)
