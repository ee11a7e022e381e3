"""The supervisor starts, keeps, shows and stops whatever processes it is given."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.embedded import commands
from infra.embedded.home import Home
from infra.embedded.keeper import Backoff
from infra.embedded.options import Options
from infra.embedded.processes import Identity
from infra.embedded.serve import end_leftovers
from infra.embedded.state import Entry, State
from tests.patience import PATIENCE_SECONDS
from tests.servers import wait_until


@dataclass
class StandIns:
    """A stack of stand-ins in a home of its own."""

    home: Home
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def up(self, variant: str = "well", *, until_ready: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.integration.embedded.standin", str(self.home.root), variant]
        self.started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        if until_ready:
            wait_until(lambda: self.is_ready(self.started[-1].pid), "the stand-ins to be ready")
            settled = [self.home.root / f"{name}.set" for name in ("store", "worker")]
            wait_until(lambda: all(path.exists() for path in settled), "the stand-ins to be settled")
        return self.started[-1]

    def is_ready(self, pid: int) -> bool:
        state = State.read(self.home)
        return state is not None and state.ready and state.supervisor.pid == pid

    def shown(self, name: str) -> dict[str, Any]:
        return next(row for row in commands.ps(self.home.root) if row["name"] == name)

    def identities(self) -> dict[str, Identity]:
        state = State.read(self.home)
        assert state is not None
        return {entry.name: entry.identity for entry in state.processes if entry.identity}


@pytest.fixture
def stand_ins(tmp_path: Path) -> Iterator[StandIns]:
    stack = StandIns(Home(tmp_path / "home"))
    yield stack
    runner = stack.identities().get("runner") if stack.home.root.exists() and State.read(stack.home) else None
    for child in stack.started:
        child.terminate()
        child.communicate(timeout=PATIENCE_SECONDS)
    if runner:
        runner.end(signal.SIGTERM, PATIENCE_SECONDS)


def test_starts_again_what_was_killed_and_counts_it(stand_ins: StandIns) -> None:
    stand_ins.up()
    before = stand_ins.shown("worker")
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(
        lambda: stand_ins.shown("worker")["state"] == "running" and stand_ins.shown("worker")["restarts"], "a restart"
    )
    after = stand_ins.shown("worker")
    assert after["restarts"] == 1
    assert after["pid"] != before["pid"]
    assert after["started_at"] >= before["started_at"]
    assert stand_ins.shown("web")["restarts"] == 0


def test_is_running_again_only_once_it_answers(stand_ins: StandIns) -> None:
    stand_ins.up()
    (stand_ins.home.root / "readyz").unlink()
    os.kill(stand_ins.shown("web")["pid"], signal.SIGKILL)
    wait_until(lambda: stand_ins.shown("web")["restarts"] == 1 and stand_ins.shown("web")["pid"], "a restart")
    assert stand_ins.shown("web")["state"] == "starting"
    (stand_ins.home.root / "readyz").touch()
    wait_until(lambda: stand_ins.shown("web")["state"] == "running", "the answer")


def test_keeps_trying_what_dies_at_once(stand_ins: StandIns) -> None:
    stand_ins.up("dying", until_ready=False)
    wait_until(lambda: State.read(stand_ins.home) and len(commands.ps(stand_ins.home.root)) == 4, "the second stage")
    wait_until(lambda: stand_ins.shown("worker")["restarts"] >= 3, "three tries")


def test_waits_longer_after_each_death_up_to_a_bound() -> None:
    backoff = Backoff(first_seconds=0.5, longest_seconds=5)
    assert [backoff.seconds(deaths) for deaths in (1, 2, 3, 4, 5, 1000)] == [0.5, 1, 2, 4, 5, 5]


def test_everything_but_the_runner_ends_with_a_killed_supervisor(stand_ins: StandIns) -> None:
    supervisor = stand_ins.up()
    identities = stand_ins.identities()
    supervisor.kill()
    supervisor.wait()
    for name in ("store", "web", "worker"):
        assert identities[name].gone_within(PATIENCE_SECONDS), f"{name} outlived its supervisor"
    assert identities["runner"].alive()
    assert {row["name"]: row["state"] for row in commands.ps(stand_ins.home.root)} == {
        "store": "stopped",
        "runner": "running",
        "web": "stopped",
        "worker": "stopped",
    }


def test_the_next_supervisor_watches_the_runner_that_outlived_the_last(stand_ins: StandIns) -> None:
    stand_ins.up().terminate()
    assert stand_ins.started[0].wait(PATIENCE_SECONDS) == 0
    first = stand_ins.shown("runner")["pid"]
    stand_ins.up()
    assert (stand_ins.shown("runner")["pid"], stand_ins.shown("runner")["restarts"]) == (first, 0)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: stand_ins.shown("runner")["restarts"] == 1 and stand_ins.shown("runner")["pid"], "a new runner")


def test_shuts_the_door_and_then_stops_the_last_stage_first(stand_ins: StandIns) -> None:
    stand_ins.up()
    assert commands.down(stand_ins.home.root) == 0
    assert (stand_ins.home.root / "order").read_text().split() == ["door", "worker", "store"]
    assert stand_ins.started[0].wait(PATIENCE_SECONDS) == 0


def test_kills_what_does_not_end_when_asked(stand_ins: StandIns) -> None:
    stand_ins.up("stubborn")
    worker = stand_ins.identities()["worker"]
    assert commands.down(stand_ins.home.root) == 0
    assert not worker.alive()
    assert "worker did not end in 0.3 s: killed" in stand_ins.started[0].communicate()[1]


def test_a_failed_errand_is_told_with_the_end_of_its_log_and_stops_the_rest(stand_ins: StandIns) -> None:
    supervisor = stand_ins.up("failing", until_ready=False)
    _, told = supervisor.communicate(timeout=PATIENCE_SECONDS)
    assert supervisor.returncode == 1
    assert "prepare failed with exit code 3" in told
    assert "the ink is dry" in told
    state = State.read(stand_ins.home)
    assert state is not None
    assert "prepare failed" in str(state.problem)
    assert [entry.name for entry in state.processes if entry.identity] == ["runner"]


def test_a_server_that_keeps_ending_at_the_start_is_told_with_the_end_of_its_log_and_stops_the_rest(
    stand_ins: StandIns,
) -> None:
    supervisor = stand_ins.up("hopeless", until_ready=False)
    _, told = supervisor.communicate(timeout=PATIENCE_SECONDS)
    assert supervisor.returncode == 1
    assert "store cannot be started: it ended with exit code 4" in told
    assert "the shelf is bent" in told
    state = State.read(stand_ins.home)
    assert state is not None
    assert not state.servers_ready
    assert "store cannot be started" in str(state.problem)
    assert [entry.name for entry in state.processes if entry.identity] == ["runner"]


def test_a_second_up_says_that_the_first_is_running(stand_ins: StandIns, capsys: pytest.CaptureFixture[str]) -> None:
    stand_ins.up()
    assert commands.up(Options(home=stand_ins.home.root)) == 3
    assert "already running" in capsys.readouterr().err
    assert commands.up(Options(home=stand_ins.home.root, detach=True)) == 0


def test_down_ends_what_a_killed_supervisor_could_not(stand_ins: StandIns) -> None:
    """As on a kernel without PR_SET_PDEATHSIG, or with a process that ignored it."""
    supervisor = stand_ins.up("stubborn")
    worker = stand_ins.identities()["worker"]
    supervisor.kill()
    supervisor.wait()
    assert worker.alive()
    assert commands.down(stand_ins.home.root) == 0
    assert not worker.alive()


def test_down_says_when_there_is_nothing_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.down(tmp_path / "nowhere") == 0
    assert "no stack is running" in capsys.readouterr().out
    assert commands.ps(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"start_ticks": 1}, id="the pid was given to another"),
        pytest.param({"boot_id": "x"}, id="a reboot"),
    ],
)
def test_a_stranger_with_a_recorded_pid_is_left_alone(tmp_path: Path, changed: dict[str, Any]) -> None:
    home = Home(tmp_path / "home")
    home.make()
    stranger = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        real = Identity.of_child(stranger)
        recorded = Identity.from_json(real.to_json() | changed)
        entry = Entry("worker", recorded, "running", 0, None, str(home.log("worker")))
        State(recorded, ready=True, processes=(entry,)).write(home)
        state = State.read(home)
        assert state is not None
        end_leftovers(state)
        assert commands.down(home.root) == 0
        assert real.alive()
        assert commands.ps(home.root)[0]["state"] == "stopped"
    finally:
        stranger.kill()
        stranger.wait()
