"""A whole stack goes on: with several processes of a service, while they end, when a server dies or loses its store."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import nats
import pytest

from infra.embedded import commands
from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.state import State
from shared.contracts.subjects import SERVICES
from tests.e2e.load import Requests
from tests.e2e.stacks import Ended, Stack, eventually
from tests.integration.embedded.test_homes import NAMES


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its home's name is not ASCII, has blanks and signs, and is longer than 200 characters."""
    running = Stack(tmp_path_factory.mktemp("replicated").joinpath(*(str(name.values[0]) for name in NAMES)))
    running.home.mkdir(parents=True)
    running.up("--virtual-gpus", "2", "--replicas", "gatekeeper=3,api=2")
    yield running
    running.down()


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that is not there yet, in a folder that jobs may look into."""
    with tempfile.TemporaryDirectory(prefix="tidegate-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "gate"


def rows_of(stack: Stack) -> dict[str, dict[str, Any]]:
    """What `ps` shows, by name, without the cost of a process for each look."""
    return {row["name"]: row for row in commands.ps(stack.home)}


def test_every_replica_is_a_process_that_knows_its_name_and_answers_on_a_port_of_its_own(
    stack: Stack,
) -> None:
    rows = rows_of(stack)
    replicas = ["api", "api-2", "gatekeeper", "gatekeeper-2", "gatekeeper-3"]
    assert set(rows) == {"postgres", "nats", "runner", "topology", *SERVICES, *replicas}
    assert {row["state"] for row in rows.values()} == {"running"}
    environs = [Path(f"/proc/{rows[name]['pid']}/environ").read_text().split("\0") for name in replicas]
    assert all(f"TIDEGATE_REPLICA={name}" in environ for name, environ in zip(replicas, environs, strict=True))
    state = State.read(Home(stack.home))
    assert state is not None
    asked = {entry.ready for entry in state.processes if entry.name in replicas}
    assert len(asked) == len(replicas)
    assert None not in asked


def test_every_replica_has_a_log_of_its_own(stack: Stack) -> None:
    shown = stack.cli("logs", "gatekeeper-3")
    assert shown.code == 0
    assert "gatekeeper: started" in shown.out
    missing = stack.cli("logs", "gatekeeper-4")
    assert missing.code == 3
    assert "gatekeeper-3" in missing.err


def test_another_number_of_replicas_is_not_applied_to_a_stack_that_runs(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {"gatekeeper": 3, "api": 2, "stager": 1}
    assert commands.up(Options(stack.home, replicas=same, detach=True)) == 0
    assert commands.up(Options(stack.home, replicas=same | {"gatekeeper": 2, "launcher": 2}, detach=True)) == 3
    told = capsys.readouterr().err
    assert "--replicas gatekeeper=2 (it has 3), --replicas launcher=2 (it has 1)." in told
    assert "stager" not in told


def test_no_request_is_refused_while_all_replicas_of_api_end_and_start(stack: Stack) -> None:
    """Requests wait at the door for the first that is back."""
    before = rows_of(stack)
    with Requests(stack) as requests:
        requests.more()
        for name in ("api", "api-2"):
            os.kill(before[name]["pid"], signal.SIGTERM)
        eventually(lambda: _are_back(stack, before), "both to be back")
        requests.more()
    assert requests.failed == []


def test_no_job_fails_no_request_is_refused_and_no_watching_ends_while_every_service_is_restarted(
    stack: Stack, gate: Path
) -> None:
    """By `tidegate restart`: two processes answer requests; of what has one, that one is away for a while."""
    before = rows_of(stack)
    with Watched(stack, gate) as watched, Requests(stack) as requests:
        requests.more()
        ended = stack.cli("restart", seconds=600)
        requests.more()
    assert ended.code == 0, ended.err
    restarted = [line.split()[0] for line in ended.out.splitlines()]
    replicas = ["api", "api-2", "gatekeeper", "gatekeeper-2", "gatekeeper-3"]
    assert restarted == [*replicas, *(service for service in SERVICES if service not in replicas)]
    after = rows_of(stack)
    assert {name for name in after if after[name]["pid"] != before[name]["pid"]} == set(restarted)
    assert {row["state"] for row in after.values()} == {"running"}
    assert requests.failed == []
    with stack.client() as client:
        jobs = [client.wait(job) for job in requests.jobs]
    assert [job for job in jobs if (job.state, job.attempt) != ("SUCCEEDED", 1)] == []
    assert [(name, ended) for name, ended in watched.ends.items() if ended.code != 0] == []
    assert watched.ends["logs"].out == "one\ntwo\n"
    assert re.findall(r"\| (.*)", watched.ends["follow"].out) == ["one", "two"]
    assert "SUCCEEDED" in watched.ends["events"].out.splitlines()[-1]


def test_a_job_has_its_files_in_a_home_with_an_awkward_name(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ink")
    job = stack.submit("--in", "in.txt", "--out", "out.txt", "--", "cp", "in.txt", "out.txt", cwd=tmp_path)
    assert job["state"] == "SUCCEEDED"


class Watched:
    """A job that runs for as long as the block, and commands that watch it, or one like it, to its end."""

    def __init__(self, stack: Stack, gate: Path) -> None:
        self._stack = stack
        self._gate = gate
        self.ends: dict[str, Ended] = {}

    def __enter__(self) -> Self:
        script = f"echo one; while [ ! -e {self._gate} ]; do sleep 0.2; done; echo two"
        job = ("--no-snapshot", "--", "sh", "-c", script)
        known = self._stack.cli("submit", "--json", *job).json["id"]
        self._running = {
            "wait": (self._stack.start("submit", "--wait", *job), "submitted"),
            "follow": (self._stack.start("submit", "--follow", *job), "| one"),
            "logs": (self._stack.start("logs", "-f", known), "one"),
            "events": (self._stack.start("events", "-f", known), "RUNNING"),
        }
        self._said = {name: _until(command, word) for name, (command, word) in self._running.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.touch()
        for name, (command, _word) in self._running.items():
            with command:
                assert command.stdout is not None
                assert command.stderr is not None
                out, err = self._said[name] + command.stdout.read(), command.stderr.read()
            self.ends[name] = Ended(command.returncode, out, err)


def _until(command: subprocess.Popen[str], word: str) -> str:
    """What a command prints, up to the line with that word."""
    assert command.stdout is not None
    said = ""
    while word not in said and (line := command.stdout.readline()):
        said += line
    return said


def _are_back(stack: Stack, before: dict[str, dict[str, Any]]) -> bool:
    rows = rows_of(stack)
    return all(
        rows[name]["state"] == "running" and rows[name]["restarts"] == before[name]["restarts"] + 1
        for name in ("api", "api-2")
    )


@pytest.mark.parametrize(
    ("server", "number"),
    [
        pytest.param("postgres", signal.SIGQUIT, id="postgres is shut down at once"),
        pytest.param("postgres", signal.SIGKILL, id="postgres is killed"),
        pytest.param("nats", signal.SIGKILL, id="nats is killed"),
        pytest.param("runner", signal.SIGKILL, id="the runner is killed"),
    ],
)
def test_a_server_that_dies_is_shown_as_gone_and_is_started_again(
    stack: Stack, server: str, number: signal.Signals
) -> None:
    before = rows_of(stack)[server]
    with stack.server_down(server, number):
        shown = rows_of(stack)[server]
        assert (shown["state"], shown["pid"]) == ("stopped", None)
    eventually(lambda: rows_of(stack)[server]["state"] == "running", f"{server} to answer again")
    after = rows_of(stack)[server]
    assert after["restarts"] == before["restarts"] + 1
    assert after["pid"] != before["pid"]
    assert stack.run("true")["state"] == "SUCCEEDED"


async def test_the_store_of_nats_can_be_put_back_to_what_it_was_and_lost(stack: Stack, tmp_path: Path) -> None:
    await _mark(stack)
    stack.copy_nats_store(tmp_path / "copy")
    assert await _mark(stack) == 2
    stack.replace_nats_store(tmp_path / "copy")
    eventually(lambda: rows_of(stack)["nats"]["state"] == "running", "nats to answer again")
    assert await _mark(stack) == 2
    stack.replace_nats_store(None)
    eventually(lambda: rows_of(stack)["nats"]["state"] == "running", "nats to answer again")
    assert await _mark(stack) == 1


def test_a_broker_that_lost_its_store_gets_streams_and_consumers_back_by_itself(stack: Stack) -> None:
    stack.replace_nats_store(None)
    assert stack.run("true")["state"] == "SUCCEEDED"


async def _mark(stack: Stack) -> int:
    """Store one more message in a stream that no service knows; its number there."""
    password = Home(stack.home).secret("admin.nats.password")
    login = {"user": "admin", "password": password, "inbox_prefix": "_INBOX_admin"}
    connection = await nats.connect(stack.endpoint["nats_url"], **login)
    try:
        await connection.jetstream().add_stream(name="MARKS", subjects=["marks"])
        return (await connection.jetstream().publish("marks", b"")).seq
    finally:
        await connection.close()
