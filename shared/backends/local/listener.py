"""Who listens at a port of this machine: any local user may have taken it before the one whom it was meant for."""

from __future__ import annotations

from collections.abc import Iterable

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = b"0A"
# As proc(5) writes 127.0.0.1, 0.0.0.0, the same two within IPv6, and [::].
_LOOPBACK = frozenset(
    {b"0100007F", b"00000000", b"0000000000000000FFFF00000100007F", b"0000000000000000FFFF000000000000", b"0" * 32}
)


def users_at(port: int, tables: Iterable[bytes] | None = None) -> set[int]:
    """The users (by uid) whose processes a connection to 127.0.0.1 and this port may reach; none where nobody listens.
    Raises OSError when that cannot be known."""
    users = set()
    for table in (_content(path) for path in _TABLES) if tables is None else tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) < 8 or fields[3] != _LISTENS:
                continue
            address, _, number = fields[1].partition(b":")
            if address in _LOOPBACK and int(number, 16) == port:
                users.add(int(fields[7]))
    return users


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:  # a kernel without IPv6
        return b""
