"""Reads a tar stream entry by entry: names as bytes, memory flat, nothing written.

A reader of our own because `tarfile` reads headers of any size into memory, keeps every entry, and follows sparse maps,
all of which a hostile archive can make unbounded. Source: POSIX.1-2017 pax (ustar and pax records), GNU tar manual
(long names, base-256 numbers).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

_BLOCK: Final = 512
_CHUNK: Final = 1 << 20
_MAX_HEADER_BYTES: Final = 256 << 10  # two paths of 4 KiB and some records: nothing honest needs more


class Readable(Protocol):
    """What the reader reads from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class TarError(ValueError):
    """The bytes are no tar archive, or one that is cut off."""


class Kind(StrEnum):
    """What an entry makes; `OTHER` is whatever cannot be staged."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    HARD_LINK = "hard link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as the archive has it. `path` and `target` are decoded as `os.fsdecode` does; nothing is checked."""

    path: str
    kind: Kind
    mode: int
    size: int
    target: str
    what: str
    """The kind in words, for a sentence."""


_KINDS: Final[dict[bytes, tuple[Kind, str]]] = {
    b"0": (Kind.FILE, "a file"),
    b"\0": (Kind.FILE, "a file"),
    b"7": (Kind.FILE, "a file"),
    b"1": (Kind.HARD_LINK, "a hard link"),
    b"2": (Kind.LINK, "a link"),
    b"3": (Kind.OTHER, "a character device"),
    b"4": (Kind.OTHER, "a block device"),
    b"5": (Kind.FOLDER, "a folder"),
    b"6": (Kind.OTHER, "a named pipe"),
    b"S": (Kind.OTHER, "a sparse file, which cannot be staged"),
}


class TarReader:
    """Iterate for the entries; after each, `content` gives its bytes (what is not read is skipped)."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[Entry]:
        global_records: dict[str, bytes] = {}
        while True:
            records = dict(global_records)
            while True:
                header = self._header()
                if header is None:
                    return
                kind = header[156:157]
                if kind == b"g":
                    global_records |= _pax(self._extension(header))
                elif kind == b"x":
                    records |= _pax(self._extension(header))
                elif kind == b"L":
                    records["path"] = self._extension(header).rstrip(b"\0")
                elif kind == b"K":
                    records["linkpath"] = self._extension(header).rstrip(b"\0")
                else:
                    break
            yield self._entry(header, records)

    def content(self) -> Iterator[bytes]:
        """The bytes of the entry that the iteration is at."""
        while self._left:
            data = self._read(min(_CHUNK, self._left))
            self._left -= len(data)
            yield data

    def _entry(self, header: bytes, records: Mapping[str, bytes]) -> Entry:
        kind, what = _KINDS.get(header[156:157], (Kind.OTHER, f"an entry of the unknown kind {header[156:157]!r}"))
        path = records.get("path", _name(header))
        if any(name.startswith("GNU.sparse.") for name in records):
            kind, what = _KINDS[b"S"]
        if kind is Kind.FILE and path.endswith(b"/"):  # how archives before ustar wrote folders
            kind, what = _KINDS[b"5"]
        size = _decimal(records["size"]) if "size" in records else _number(header[124:136])
        # Only files have content; of links and folders some writers give a size nevertheless.
        self._left = size if kind in (Kind.FILE, Kind.OTHER) else 0
        self._padding = -self._left % _BLOCK
        return Entry(
            path=os.fsdecode(path),
            kind=kind,
            mode=_number(header[100:108]) & 0o7777,
            size=self._left,
            target=os.fsdecode(records.get("linkpath", header[157:257].split(b"\0", 1)[0])),
            what=what,
        )

    def _header(self) -> bytes | None:
        """The next header block; None at the end of the archive."""
        self._skip(self._left + self._padding)
        self._left = self._padding = 0
        block = self._read(_BLOCK)
        if not any(block):
            return None
        counted = block[:148] + b" " * 8 + block[156:]  # the checksum counts its own field as blanks
        said = _number(block[148:156])
        if said != sum(counted) and said != _signed_sum(counted):
            raise TarError("a header's checksum is wrong: the archive is damaged, or no tar archive")
        return block

    def _extension(self, header: bytes) -> bytes:
        size = _number(header[124:136])
        if size > _MAX_HEADER_BYTES:
            raise TarError(f"a header has {size} bytes; at most {_MAX_HEADER_BYTES} are read")
        data = self._read(size)
        self._skip(-size % _BLOCK)
        return data

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._stream.read(size - len(data))
            if not part:
                raise TarError("the archive is cut off")
            data += part
        return data

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._read(min(_CHUNK, size)))


def _signed_sum(data: bytes) -> int:
    """As some old writers summed their headers."""
    return sum(byte - 256 if byte > 127 else byte for byte in data)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _number(field: bytes) -> int:
    """Octal text, or GNU's base 256 where the first bit is set; never negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.replace(b"\0", b" ").strip()
    if not text:
        return 0
    try:
        if text.isdigit():
            return int(text, 8)
    except ValueError:  # an 8 or a 9
        pass
    raise TarError(f"{field!r} is no number of a tar header")


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise TarError(f"{text[:40]!r} is no size of a pax header")
    return int(text)


def _pax(data: bytes) -> dict[str, bytes]:
    """The records `<length> <name>=<value>\\n`; only the names are text."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        digits, blank, _ = data[at : at + 20].partition(b" ")
        length = _decimal(digits) if blank else 0
        record = data[at + len(digits) + 1 : at + length]
        name, equals, value = record.partition(b"=")
        if length <= len(digits) + 1 or at + length > len(data) or not equals or not value.endswith(b"\n"):
            raise TarError("a pax header is damaged")
        records[name.decode("utf-8", "replace")] = value[:-1]
        at += length
    return records
