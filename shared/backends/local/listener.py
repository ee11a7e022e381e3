"""Who listens at a port of this machine: any local user may have taken it before the one whom it was meant for."""

from __future__ import annotations

from collections.abc import Iterable

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = b"0A"
# As proc(5) writes 127.0.0.1 and 0.0.0.0, and the same two within IPv6.
_IPV4 = frozenset({b"0100007F", b"00000000", b"0000000000000000FFFF00000100007F", b"0000000000000000FFFF000000000000"})
_EVERY_IPV6 = b"0" * 32


def users_at(port: int, tables: Iterable[bytes] | None = None) -> set[int]:
    """The users (by uid) whose processes a connection to 127.0.0.1 and this port may reach; none where nobody listens.
    Raises OSError when that cannot be known.

    The kernel prefers an IPv4 listener, so one at [::] counts only without any: whether it takes IPv4 at all
    (IPV6_V6ONLY, ipv6(7)) the tables do not say, and one that does not may be bound beside another user's IPv4 one.
    """
    ipv4, every_ipv6 = set(), set()
    for table in (_content(path) for path in _TABLES) if tables is None else tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) < 8 or fields[3] != _LISTENS:
                continue
            address, _, number = fields[1].partition(b":")
            if address in _IPV4 and int(number, 16) == port:
                ipv4.add(int(fields[7]))
            elif address == _EVERY_IPV6 and int(number, 16) == port:
                every_ipv6.add(int(fields[7]))
    return ipv4 or every_ipv6


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:  # a kernel without IPv6
        return b""
