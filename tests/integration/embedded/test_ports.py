"""Two stacks on one machine never take each other's ports."""

import gc
import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.ports import Ports, PortTakenError
from infra.embedded.stack import Stack
from tests.patience import PATIENCE_SECONDS

_numbers = itertools.count()


def test_two_homes_that_ask_at_once_get_different_ports(tmp_path: Path) -> None:
    first, second = Ports(tmp_path / "same", {}), Ports(tmp_path / "same", {})
    assert first.some("nats") != second.some("nats")


def test_a_port_is_held_before_anything_listens_on_it(tmp_path: Path) -> None:
    first, second = Ports(tmp_path / "one", {}), Ports(tmp_path / "two", {})
    port = first.some("http", wish=_a_free_port())
    assert second.some("http", wish=port) != port
    with pytest.raises(PortTakenError, match=f"port {port} is in use"):
        second.exactly("http", port)


def test_the_port_of_last_time_is_taken_again_where_it_is_free(tmp_path: Path) -> None:
    port = _a_free_port()
    assert Ports(tmp_path, {"nats": port}).some("nats") == port


def test_another_program_on_the_port_of_last_time_is_avoided(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert Ports(tmp_path, {"nats": port}).some("nats") != port
        with pytest.raises(PortTakenError, match="--http-port"):
            Ports(tmp_path, {}).exactly("http", port)


def test_the_port_that_was_to_be_taken_and_was_in_use_is_known(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        busy = listener.getsockname()[1]
        ports = Ports(tmp_path, {})
        ports.some("http", wish=busy)
        ports.some("nats", wish=_a_free_port())
        assert ports.passed_over == {"http": busy}


def test_chosen_ports_lie_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = Ports(tmp_path, {})
    assert all(1024 < ports.some(f"service-{number}") < min(lowest, 32768) for number in range(20))


def test_a_killed_process_lets_go_of_its_ports(tmp_path: Path) -> None:
    port = _a_free_port()
    program = (
        "import sys; from pathlib import Path; from infra.embedded.ports import Ports; "
        "ports = Ports(Path('/nowhere'), {}); ports.exactly('http', int(sys.argv[1])); print('held', flush=True); "
        "input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "held"
    with pytest.raises(PortTakenError):
        Ports(tmp_path, {}).exactly("http", port)
    holder.kill()
    holder.communicate()
    assert Ports(tmp_path, {}).exactly("http", port) == port


def _a_free_port() -> int:
    """None of those that the kernel gives to outgoing connections at any moment."""
    return Ports(Path(f"/nowhere/{os.getpid()}/{next(_numbers)}"), {}).some("free")


def test_a_bound_port_waits_for_who_listens_and_takes_connections_between_two_of_them(tmp_path: Path) -> None:
    ports = Ports(tmp_path, {})
    address = ("127.0.0.1", ports.some("http"))
    door = ports.bound("http")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with door.dup() as first:
        first.listen()
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as waiting:
        with door.dup() as second:
            taken, _ = second.accept()
        taken.close()
        assert waiting.recv(1) == b""
    door.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_a_stack_that_was_laid_out_keeps_its_ports_from_others(tmp_path: Path) -> None:
    Home(tmp_path).make()
    stack = Stack.lay_out(Options(tmp_path), {})
    gc.collect()
    with pytest.raises(PortTakenError):
        Ports(tmp_path / "other", {}).exactly("http", stack.ports["http"])
