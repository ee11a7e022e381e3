"""Ports on the loopback address that two stacks on one machine never share.

A port is chosen long before the service that gets it listens, so that looking whether it is free is not enough. A
claim is an abstract unix socket (unix(7)) named for the port: it holds machine-wide like the port itself, between
users, and goes with the process that made it, however that ends.
"""

import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_000  # below the kernel's own range for outgoing connections, which may take any port in it


class PortTakenError(Exception):
    """The port that was asked for is in use."""


class Ports:
    """The ports of one stack; they are held until the process ends."""

    def __init__(self, home: Path, remembered: dict[str, int]) -> None:
        self._home = home
        self._remembered = remembered
        self._claims: dict[int, socket.socket] = {}
        self._chosen: dict[str, int] = {}
        self.passed_over: dict[str, int] = {}
        """By name, the port that was to be taken and was in use."""

    def exactly(self, name: str, port: int) -> int:
        """The very port that was asked for."""
        if not self._claim(port):
            raise PortTakenError(
                f"port {port} is in use by another program or stack. Choose another with --http-port, "
                f"or see who has it: `ss -ltnp 'sport = :{port}'`."
            )
        self._chosen[name] = port
        return port

    def some(self, name: str, wish: int | None = None) -> int:
        """The port of last time where it is free, else the wished one, else any."""
        for port in self._candidates(name, wish):
            if self._claim(port):
                self._chosen[name] = port
                return port
            self.passed_over.setdefault(name, port)
        raise PortTakenError(
            f"no free port between {_FIRST} and {_LAST} for {name}: end some of the programs that listen there."
        )

    def bound(self, name: str) -> socket.socket:
        """A socket on the port of that name, for those who serve it to listen on in turn, or several at once.

        While this process has it open, the port stays open between one that ends and the next.
        """
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as in `_free`
        port = self._chosen[name]
        try:
            door.bind((LOOPBACK, port))
        except OSError as error:
            door.close()
            raise PortTakenError(f"port {port} was taken by another program just now: start again.") from error
        return door

    def held(self) -> dict[str, int]:
        """All of them, by name."""
        return dict(self._chosen)

    def _candidates(self, name: str, wish: int | None) -> Iterator[int]:
        if name in self._remembered:
            yield self._remembered[name]
        if wish is not None:
            yield wish
        # From a place of this home's own, so that two homes seldom ask for the same.
        digest = hashlib.sha256(os.fsencode(self._home) + name.encode()).digest()
        start = int.from_bytes(digest[:4], "big")
        yield from (_FIRST + (start + step) % (_LAST - _FIRST) for step in range(_LAST - _FIRST))

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0tidegate-port-{port}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        if not _free(port):
            claim.close()
            return False
        self._claims[port] = claim
        return True


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: connections that linger do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
