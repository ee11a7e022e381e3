"""Probes of a workstation's activity, each on readings of its own, and what is recorded of them together."""

import os
from pathlib import Path

import pytest

from shared.backends.local.prober import Looking
from shared.backends.local.probes import gpu
from shared.backends.local.probes.connections import Connections
from shared.backends.local.probes.cpu import Cpu, used_ms
from shared.backends.local.probes.gpu import Gpu
from shared.backends.local.probes.heartbeat import Heartbeat, modified_ms
from shared.backends.local.probes.probe import Watched

NOW = 1_800_000_000_000
START = NOW - 60_000
HERE = Watched(supervisor=os.getpid(), prober=0, port=20_001, heartbeat="", devices=(0, 1))


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


TABLE = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0100007F:4E21 00000000:0000 %s 00000000:00000000 00:00000000 00000000  0 0 1
   1: 0100007F:0016 0100007F:4E21 01 00000000:00000000 00:00000000 00000000  0 0 1
"""


@pytest.mark.parametrize(("state", "active"), [(b"0A", False), (b"06", False), (b"01", True)])
def test_an_established_connection_to_its_port_is_activity(state: bytes, active: bool) -> None:
    assert Connections(0x4E21, lambda: [b"", TABLE % state]).look(NOW) == (NOW if active else None)


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
