"""Connections: does anybody have one to its port, or had one within the last minute?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from shared.backends.local.probes.probe import Watched

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED, _TIME_WAIT = b"01", b"06"
# As proc(5) writes what stands before an IPv4 address within IPv6; and 127.x.x.x, [::1].
_IPV4_IN_IPV6 = b"0000000000000000FFFF0000"
_LOOPBACK, _LOOPBACK_IPV6 = b"7F", b"0" * 24 + b"01000000"


class Connections:
    """Active while one of its users has a TCP connection to its port, and while the kernel remembers that one was.

    A connection counts while it is established where both its ends are of `users`: another user of this machine cannot
    keep a workstation awake by holding one. A peer on another machine has no user here, and counts. What was closed is
    in TIME_WAIT for 60 s at the end that closed it first, so short requests between two looks are seen. The kernel
    keeps no user of those: whose it was is unknown, and it counts.
    """

    name = "connections"

    def __init__(self, port: int, users: frozenset[int], read: Callable[[], Iterable[bytes]]) -> None:
        self._port, self._users, self._read = port, users, read

    def look(self, at_ms: int) -> int | None:
        """Both tables are read: a program may listen at both families."""
        return at_ms if is_used(self._read(), self._port, self._users) else None


def make(watched: Watched) -> Connections:
    """To the port that the workstation was given; from its own user, or the stack's, which leads users there."""
    users = frozenset({watched.uid, os.geteuid()})
    return Connections(watched.port, users, lambda: [_content(path) for path in _TABLES])


class _End(NamedTuple):
    address: bytes
    port: int

    @property
    def is_loopback(self) -> bool:
        if len(self.address) == 8:
            return self.address.endswith(_LOOPBACK)
        return self.address == _LOOPBACK_IPV6


def is_used(tables: Iterable[bytes], port: int, users: frozenset[int]) -> bool:
    """Is, or was, there a connection to this port? proc(5), /proc/net/tcp: addresses are hex."""
    established: dict[tuple[_End, _End], int] = {}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) < 8 or fields[3] not in (_ESTABLISHED, _TIME_WAIT):
                continue
            here, there = _end(fields[1]), _end(fields[2])
            if fields[3] == _ESTABLISHED:
                established[here, there] = int(fields[7])
            elif here.port == port or (there.port == port and there.is_loopback):
                return True
    return any(
        here.port == port and user in users and _is_of(users, established.get((there, here)), there)
        for (here, there), user in established.items()
    )


def _is_of(users: frozenset[int], user: int | None, peer: _End) -> bool:
    return not peer.is_loopback if user is None else user in users


def _end(field: bytes) -> _End:
    address, _, port = field.partition(b":")
    return _End(address.removeprefix(_IPV4_IN_IPV6), int(port, 16))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:  # a kernel without IPv6
        return b""
