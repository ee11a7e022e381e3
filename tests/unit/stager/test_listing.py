"""An archive is found safe before anything of it is written, or refused with the entry's name (C1)."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from services.stager.listing import Limits
from services.stager.tar import Kind
from tests.unit.stager.archives import archive, entry, folder, gzipped, link, listed, read_back, refusals


def a_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../x", "1")
    return packed.getvalue()


HOSTILE = {
    "a link that leads out, and a file through it": (
        [link("d", "/elsewhere"), entry("d/x.txt", b"!")], "'d/x.txt'", "link",
    ),
    "a relative link that leads out": ([link("d", "../..")], "'d'", "above"),
    "a link that leads out through another": (
        [folder("a"), folder("a/b"), link("a/b/up", "../.."), link("x", "a/b/up/../y")], "'x'", "above",
    ),
    "a link to itself": ([link("l", "l")], "'l'", "circle"),
    "a name with ..": ([entry("../y", b"!")], "'../y'", "leads out"),
    "a name with .. inside": ([entry("a/../../y", b"!")], "'a/../../y'", "leads out"),
    "an absolute name": ([entry("/abs/z", b"!")], "'/abs/z'", "leads out"),
    "a hard link elsewhere": ([entry("h", kind=tarfile.LNKTYPE, target="/etc/hostname")], "'h'", "hard link"),
    "a hard link upwards": ([entry("h", kind=tarfile.LNKTYPE, target="../../etc/hostname")], "'h'", "hard link"),
    "a hard link to a link": (
        [link("l", "f"), entry("h", kind=tarfile.LNKTYPE, target="l")], "'h'", "hard link",
    ),
    "a hard link to what comes later": (
        [entry("h", kind=tarfile.LNKTYPE, target="f"), entry("f", b"1")], "'h'", "before it",
    ),
    "a device": ([entry("dev", kind=tarfile.CHRTYPE)], "'dev'", "character device"),
    "a block device": ([entry("dev", kind=tarfile.BLKTYPE)], "'dev'", "block device"),
    "a pipe": ([entry("p\npe", kind=tarfile.FIFOTYPE)], r"'p\npe'", "named pipe"),
    "an unknown kind": ([entry("u", kind=b"Z")], "'u'", "unknown kind"),
    "one name twice": ([entry("a", b"1"), entry("./a", b"2")], "'./a'", "already"),
    "a file and a folder of one name": ([entry("a/b", b"1"), entry("a", b"2")], "'a'", "already"),
    "a folder and then a link of that name": ([folder("a"), link("a", "b")], "'a'", "already"),
    "a file below a file": ([entry("a", b"1"), entry("a/b", b"2")], "'a/b'", "lies in 'a'"),
    "a name that no file can have": ([entry("x" * 256, b"1")], "256 bytes", "at most 255"),
    "folders in folders for ever": ([entry("d/" * 128 + "f")], "128 folders", "deep"),
    "the directory as a file": ([entry("./", kind=tarfile.SYMTYPE, target="x")], "'./'", "directory itself"),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "name", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_refuses_an_archive_with(
    entries: list[tuple[tarfile.TarInfo, bytes]], name: str, why: str, tmp_path: Path
) -> None:
    said = refusals(archive(entry("good", b"1"), *entries))
    assert any(name in sentence and why in sentence for sentence in said), said
    assert read_back(tmp_path) == {}


def test_names_every_bad_entry_at_once() -> None:
    said = refusals(archive(entry("../a"), entry("ok"), entry("/b"), link("c", "/etc")))
    assert len(said) == 3


def test_says_no_more_than_twenty_things() -> None:
    assert len(refusals(archive(*(entry(f"../{n}") for n in range(100))))) == 20


@pytest.mark.parametrize(
    "packed", [gzipped(b"no tar"), io.BytesIO(b"no gzip"), io.BytesIO(b""), io.BytesIO(a_zip())],
    ids=["no tar", "no gzip", "nothing", "a zip"],
)  # fmt: skip
def test_what_is_no_archive_is_refused_as_unreadable(packed: io.BytesIO) -> None:
    (said,) = refusals(packed)
    assert "cannot be read" in said


def test_a_cut_off_archive_is_refused() -> None:
    whole = archive(entry("a", bytes(range(256)) * 100)).read()
    (said,) = refusals(io.BytesIO(whole[:-200]))
    assert "cannot be read" in said


def test_bombs_are_refused_by_count_size_and_ratio() -> None:
    many = archive(*(entry(str(n)) for n in range(12)))
    assert "more than 10 files" in refusals(many, Limits(members=10))[0]
    large = archive(entry("a", bytes(5000)), entry("b", bytes(6000)))
    assert "more than 10000 bytes" in refusals(large, Limits(bytes=10_000))[0]
    links = archive(entry("a", bytes(6000)), entry("h", kind=tarfile.LNKTYPE, target="a"), entry("b", b"1"))
    assert "more than 10000 bytes" in refusals(links, Limits(bytes=10_000))[0], "a hard link unpacks to a copy"
    info, _ = entry("zeros")
    info.size = 260 << 20
    bomb = gzipped(info.tobuf())  # refused for what it says, before that is unpacked
    assert "times as much" in refusals(bomb)[0]


def test_an_honest_archive_is_listed() -> None:
    tree = listed(
        archive(
            folder("./d"), folder("d"), entry("d/run", b"123", mode=0o4755), link("l", "d/../d/run"), link("m", "gone"),
            entry("h", kind=tarfile.LNKTYPE, target="d/run"), entry("deep/er/f", b"1"),
        )
    )  # fmt: skip
    assert {path: member.kind for path, member in tree.members.items()} == {
        "d": Kind.FOLDER, "d/run": Kind.FILE, "l": Kind.LINK, "m": Kind.LINK, "h": Kind.HARD_LINK,
        "deep": Kind.FOLDER, "deep/er": Kind.FOLDER, "deep/er/f": Kind.FILE,
    }  # fmt: skip
    assert tree.members["d/run"].mode == 0o755
    assert tree.at("l") == ("d/run", tree.members["d/run"])
    assert tree.at("m") is None
    assert tree.at(".") is not None
    assert tree.at("d/../../x") is None
