"""The tar reader: it reads what tarfile writes, in every format, and fails by name on what is damaged."""

import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.stager.tar import Entry, Kind, TarError, TarReader
from tests.unit.stager.archives import entry, folder, link


def plain(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form, errors="surrogateescape") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def read(data: bytes) -> list[tuple[Entry, bytes]]:
    reader = TarReader(io.BytesIO(data))
    return [(found, b"".join(reader.content())) for found in reader]


FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
NAME = st.binary(min_size=1, max_size=300).map(lambda raw: raw.replace(b"\0", b"").replace(b"/", b"_")).filter(bool)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(NAME, min_size=1, max_size=3), st.binary(max_size=1500)), max_size=5),
    st.sampled_from(FORMATS[1:]),
)
def test_reads_what_tarfile_writes(files: list[tuple[list[bytes], bytes]], form: int) -> None:
    wanted = [(os.fsdecode(b"/".join(parts)), content) for parts, content in files]
    found = read(plain(*(entry(name, content) for name, content in wanted), form=form))
    assert [(each.path, content) for each, content in found] == wanted


@pytest.mark.parametrize("form", FORMATS, ids=["ustar", "gnu", "pax"])
def test_reads_kinds_modes_targets_and_long_names(form: int) -> None:
    deep = "/".join(["d" * 60] * 3)
    found = read(
        plain(
            folder("d", 0o700), entry("d/run", b"x", mode=0o4755), link("l", "d/run"), entry(f"{deep}/f", b"yz"),
            entry("h", kind=tarfile.LNKTYPE, target="d/run"), form=form,
        )
    )  # fmt: skip
    assert [(each.path.rstrip("/"), each.kind, each.mode, each.size, each.target) for each, _ in found] == [
        ("d", Kind.FOLDER, 0o700, 0, ""),
        ("d/run", Kind.FILE, 0o4755, 1, ""),
        ("l", Kind.LINK, 0o644, 0, "d/run"),
        (f"{deep}/f", Kind.FILE, 0o644, 2, ""),
        ("h", Kind.HARD_LINK, 0o644, 0, "d/run"),
    ]


def test_content_that_is_not_read_is_skipped() -> None:
    reader = TarReader(io.BytesIO(plain(entry("a", b"1" * 1000), entry("b", b"2"))))
    assert [each.path for each in reader] == ["a", "b"]


def test_a_large_size_in_base_256_is_read() -> None:
    info, _ = entry("big")
    info.size = 9 << 30
    header = info.tobuf(tarfile.GNU_FORMAT)
    assert header[124] == 0x80
    reader = TarReader(io.BytesIO(header))
    assert next(iter(reader)).size == 9 << 30


def forged(change: dict[int, bytes]) -> bytes:
    """A header with other bytes in it and a right checksum."""
    header = bytearray(entry("f", b"")[0].tobuf(tarfile.USTAR_FORMAT))
    for place, data in change.items():
        header[place : place + len(data)] = data
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (b"not a tar archive" * 100, "checksum|no number"),
        (plain(entry("a", bytes(5000)))[:2000], "cut off"),
        (forged({124: b"\xff" * 12}), "no number"),
        (forged({156: b"x", 124: b"77777777777\0"}), "at most"),
        (forged({156: b"x", 124: b"00000000010\0"}) + b"99 path=".ljust(512, b"\0"), "pax header is damaged"),
        (forged({156: b"x", 124: b"00000000005\0"}) + b"0 a=b".ljust(512, b"\0"), "pax header is damaged"),
        (forged({156: b"x", 124: b"00000000011\0"}) + b"9 size=-\n".ljust(512, b"\0") + forged({}), "no size"),
    ],
    ids=[
        "nothing", "no archive", "cut in a file", "a negative size", "an endless header", "a record past its header",
        "a record of no length", "a negative pax size",
    ],
)  # fmt: skip
def test_damage_is_named(data: bytes, why: str) -> None:
    with pytest.raises(TarError, match=why):
        read(data)


def test_a_sparse_file_is_no_file() -> None:
    info, _ = entry("s")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999999999"}
    assert read(plain((info, b"")))[0][0].kind is Kind.OTHER
    assert read(forged({156: b"S"}) + bytes(1024))[0][0].kind is Kind.OTHER
