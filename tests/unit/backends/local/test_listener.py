"""Who listens at a port, as the kernel's tables say it."""

import os
import socket

import pytest

from shared.backends.local.listener import users_at

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
PORT = 0x5208


def line(address: str, state: str = "0A", uid: int = 1000, port: int = PORT) -> bytes:
    """A line of /proc/net/tcp or tcp6."""
    rest = f"{'0' * len(address)}:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 12345 1"
    return f"   0: {address}:{port:04X} {rest}\n".encode()


@pytest.mark.parametrize(
    ("lines", "users"),
    [
        ([], set()),
        ([line("0100007F")], {1000}),
        ([line("00000000", uid=7)], {7}),
        ([line("0" * 32)], {1000}),
        ([line("0000000000000000FFFF00000100007F")], {1000}),
        ([line("0200007F", uid=7)], set()),
        ([line("0" * 24 + "01000000", uid=7)], set()),
        ([line("0100007F", state="01")], set()),
        ([line("0100007F", port=PORT + 1)], set()),
        ([line("0100007F"), line("00000000", uid=7)], {1000, 7}),
        ([line("0" * 32, uid=7), line("0100007F")], {1000}),
        ([line("0" * 32, uid=7), line("00000000")], {1000}),
        ([line("0" * 32, uid=7), line("0000000000000000FFFF00000100007F")], {1000}),
        ([line("0" * 32), line("0" * 32, uid=7)], {1000, 7}),
        ([b"torn\n", line("0100007F")], {1000}),
    ],
    ids=[
        "nobody",
        "loopback",
        "every address",
        "every address of both families",
        "loopback in the other family",
        "another loopback address",
        "loopback of IPv6",
        "a connection",
        "another port",
        "two users",
        "one at every address of IPv6 beside loopback",
        "one at every address of IPv6 beside every address",
        "one at every address of IPv6 beside loopback in the other family",
        "two users of IPv6",
        "a torn line",
    ],
)
def test_tells_whom_a_connection_to_127_0_0_1_may_reach(lines: list[bytes], users: set[int]) -> None:
    assert users_at(PORT, [HEAD + b"".join(lines), HEAD]) == users


def test_finds_a_real_listener_and_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert users_at(port) == {os.geteuid()}
    assert users_at(port) == set()
