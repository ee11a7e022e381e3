"""Connections: does anybody have one to its port?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shared.backends.local.probes.probe import Watched

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = b"01"


class Connections:
    """Active while at least one TCP connection to its port is established."""

    name = "connections"

    def __init__(self, port: int, read: Callable[[], Iterable[bytes]]) -> None:
        self._port, self._read = port, read

    def look(self, at_ms: int) -> int | None:
        """Both tables are read: a program may listen at both families."""
        return at_ms if any(is_connected(table, self._port) for table in self._read()) else None


def make(watched: Watched) -> Connections:
    """To the port that the workstation was given."""
    return Connections(watched.port, lambda: (_content(path) for path in _TABLES))


def is_connected(table: bytes, port: int) -> bool:
    """Is there an established connection whose local end is this port? proc(5), /proc/net/tcp: addresses are hex."""
    ending = b":%04X" % port
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == _ESTABLISHED and fields[1].endswith(ending):
            return True
    return False


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:  # a kernel without IPv6
        return b""
