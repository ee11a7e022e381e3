"""Probes of a workstation's activity, each on readings of its own, and what is recorded of them together."""

import os
import socket
from pathlib import Path

import pytest

from shared.backends.local.prober import Looking
from shared.backends.local.probes import connections, gpu
from shared.backends.local.probes.connections import Connections
from shared.backends.local.probes.cpu import Cpu, used_ms
from shared.backends.local.probes.gpu import Gpu
from shared.backends.local.probes.heartbeat import Heartbeat, modified_ms
from shared.backends.local.probes.probe import Watched

NOW = 1_800_000_000_000
START = NOW - 60_000
HERE = Watched(supervisor=os.getpid(), prober=0, uid=os.geteuid(), port=20_001, heartbeat="", devices=(0, 1))


class Says:
    """A probe that gives these answers, one a look."""

    def __init__(self, name: str, *answers: int | Exception | None) -> None:
        self.name, self._answers = name, list(answers)

    def look(self, at_ms: int) -> int | None:
        """The next one."""
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(("used", "active"), [(249, False), (250, False), (251, True), (20_000, True), (-5, False)])
def test_more_than_a_twentieth_of_a_core_is_activity(used: int, active: bool) -> None:
    readings, times = iter([1000, 1000 + used]), iter([0, 5000])
    probe = Cpu(lambda: next(readings), lambda: next(times))
    assert probe.look(NOW) is None, "the first look has nothing to compare with"
    assert probe.look(NOW) == (NOW if active else None)


def test_cpu_time_of_children_that_have_ended_is_counted() -> None:
    before = used_ms(HERE)
    while used_ms(HERE) <= before:
        if os.posix_spawn("/bin/sh", ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"], {}):
            os.wait()


@pytest.mark.parametrize(("said", "active"), [("0\n", False), ("0\n0\n", False), ("0\n37\n", True), ("", False)])
def test_a_gpu_at_work_is_activity(said: str, active: bool) -> None:
    assert Gpu(lambda: said).look(NOW) == (NOW if active else None)


def test_a_gpu_that_tells_nothing_is_no_information() -> None:
    with pytest.raises(ValueError, match="N/A"):
        Gpu(lambda: "[N/A]\n").look(NOW)


def test_gpus_are_asked_about_where_there_is_a_tool_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.make(HERE) is None
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\n[ "$1" = --id=0,1 ] && echo 0 && echo 12\n')
    tool.chmod(0o755)
    probe = gpu.make(HERE)
    assert probe is not None
    assert probe.look(NOW) == NOW


HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
STACK, OWN, OTHER = 0, 200_001, 200_002
PORT, CLIENT = "0100007F:4E21", "0100007F:9C40"
IN_IPV6 = "0000000000000000FFFF0000"
FAR = "0200000A:9C40"


def row(here: str, there: str, uid: int, state: str = "01") -> bytes:
    """A line of /proc/net/tcp or tcp6."""
    return f"   0: {here} {there} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 12345 1\n".encode()


@pytest.mark.parametrize(
    ("rows", "active"),
    [
        ([], False),
        ([row(PORT, "00000000:0000", OWN, "0A")], False),
        ([row(PORT, CLIENT, OWN), row(CLIENT, PORT, STACK)], True),
        ([row(PORT, CLIENT, OWN), row(CLIENT, PORT, OWN)], True),
        ([row(IN_IPV6 + PORT, IN_IPV6 + CLIENT, OWN), row(CLIENT, PORT, STACK)], True),
        ([row(PORT, CLIENT, OWN), row(CLIENT, PORT, OTHER)], False),
        ([row(IN_IPV6 + PORT, IN_IPV6 + CLIENT, OWN), row(CLIENT, PORT, OTHER)], False),
        ([row(PORT, CLIENT, 0), row(CLIENT, PORT, OTHER)], False),
        ([row("0200007F:4E21", CLIENT, OTHER), row(CLIENT, "0200007F:4E21", STACK)], False),
        ([row(PORT, CLIENT, OWN)], False),
        ([row("0100000A:4E21", FAR, OWN)], True),
        ([row(FAR, "0100000A:4E21", OWN)], False),
        ([row(PORT, CLIENT, 0, "06")], True),
        ([row(CLIENT, PORT, 0, "06")], True),
        ([row("0100000A:9C40", "0200000A:4E21", 0, "06")], False),
        ([row(CLIENT, "0100007F:4E22", 0, "06"), row(CLIENT, "0100007F:4E22", OWN)], False),
        ([b"torn\n", row(PORT, CLIENT, OWN), row(CLIENT, PORT, STACK)], True),
    ],
    ids=[
        "none",
        "it listens",
        "the stack's",
        "its own user's",
        "the stack's over IPv4 to a listener of both families",
        "another user's",
        "another user's to a listener of both families",
        "another user's that is not accepted yet",
        "from the same port of another user",
        "a loopback peer that is nobody's",
        "from another machine",
        "to that port of another machine",
        "closed by the workstation",
        "closed by who asked it",
        "closed to that port of another machine",
        "to another port",
        "after a torn line",
    ],
)
def test_a_connection_of_its_users_is_activity_now_and_for_a_minute(rows: list[bytes], active: bool) -> None:
    probe = Connections(0x4E21, frozenset({STACK, OWN}), lambda: [HEAD + b"".join(rows), HEAD])
    assert probe.look(NOW) == (NOW if active else None)


@pytest.mark.parametrize("first", ["who asks", "who answers"])
def test_a_request_that_was_over_before_the_look_is_activity(first: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = connections.make(HERE._replace(port=server.getsockname()[1]))
        assert probe.look(NOW) is None
        asking = socket.create_connection(server.getsockname())
        answering, _ = server.accept()
        assert probe.look(NOW) == NOW
        end, other = (asking, answering) if first == "who asks" else (answering, asking)
        end.shutdown(socket.SHUT_WR)
        assert other.recv(1) == b""
        other.close()
        assert end.recv(1) == b""
        end.close()
        assert probe.look(NOW) == NOW


@pytest.mark.parametrize(("modified", "seen"), [(None, None), (NOW - 5, NOW - 5), (NOW + 86_400_000, NOW)])
def test_a_heartbeat_counts_when_it_was_and_never_later_than_now(modified: int | None, seen: int | None) -> None:
    assert Heartbeat(lambda: modified).look(NOW) == seen


def test_a_heartbeat_that_is_missing_or_a_link_to_nowhere_breaks_nothing(tmp_path: Path) -> None:
    assert modified_ms(str(tmp_path / "none")) is None
    (tmp_path / "link").symlink_to("/nowhere")
    assert modified_ms(str(tmp_path / "link")) is not None


def test_keeps_for_each_probe_when_it_last_saw_activity() -> None:
    looking = Looking("s", [Says("cpu", NOW, None), Says("heartbeat", None, NOW - 20_000)], START)
    assert looking.look(NOW)["probes"] == {"cpu": "2027-01-15T08:00:00.000Z", "heartbeat": None}
    assert looking.look(NOW + 5000)["probes"] == {
        "cpu": "2027-01-15T08:00:00.000Z",
        "heartbeat": "2027-01-15T07:59:40.000Z",
    }


def test_a_probe_that_fails_is_named_and_hinders_no_other() -> None:
    looking = Looking("s", [Says("gpu", OSError("no driver"), NOW), Says("cpu", NOW, NOW)], START)
    record = looking.look(NOW)
    assert record["broken"] == {"gpu": "OSError('no driver')"}
    assert record["probes"] == {"cpu": "2027-01-15T08:00:00.000Z"}
    assert looking.look(NOW)["broken"] == {}


def test_what_a_probe_saw_before_the_start_is_no_activity_of_this_run() -> None:
    looking = Looking("s", [Says("heartbeat", START - 1)], START)
    assert looking.look(NOW)["probes"] == {"heartbeat": "2027-01-15T07:59:00.000Z"}
