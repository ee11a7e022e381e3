"""The whole embedded stack through the `tidegate` command: up, ps, down, killed parts, second starts, awkward homes."""

import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.processes import Identity
from infra.embedded.stack import USUAL_HTTP_PORT
from infra.embedded.stack import Stack as EmbeddedStack
from infra.embedded.state import State
from shared.contracts.subjects import SERVICES
from tests.e2e.stacks import TERMINAL, Stack, eventually
from tests.patience import PATIENCE_SECONDS

PARTS = {"postgres", "nats", "runner", "topology", *SERVICES}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below folders with mode 0700, as those of pytest and of root are."""
    folder = tmp_path_factory.mktemp("stack")
    assert folder.parent.stat().st_mode & 0o077 == 0
    return folder


@pytest.fixture(scope="module")
def first_up(home: Path) -> Iterator[tuple[Stack, str]]:
    """The module's stack, and what `up` said when it started it beside a program on the port that it would have had."""
    stack = Stack(home)
    while True:
        with occupied(USUAL_HTTP_PORT):
            said = stack.cli("up", "--detach", "--virtual-gpus", "4")
        assert said.code == 0, said.err
        if port_of(stack) != USUAL_HTTP_PORT:
            break
        stack.down()  # it was another program's, which let go of it before the start had looked
    yield stack, said.out
    stack.down()


@pytest.fixture
def stack(first_up: tuple[Stack, str]) -> Stack:
    """The module's stack, up; a test that stopped it finds it up again."""
    stack, _ = first_up
    if not (stack.home / "endpoint.json").exists():
        stack.up("--virtual-gpus", "4")
    return stack


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that is not there yet, in a folder that jobs of every tenant may look into."""
    with tempfile.TemporaryDirectory(prefix="tidegate-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "gate"


@contextmanager
def occupied(port: int) -> Iterator[None]:
    """The port is in use while the block runs, be it by this test or by whoever has it already."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError:
        yield
        return
    with listener:
        yield


def port_of(stack: Stack) -> int:
    return int(stack.endpoint["url"].rpartition(":")[2])


def state_of(stack: Stack, job: dict[str, Any]) -> str:
    return str(stack.cli("show", job["id"], "--json").json["state"])


def identities(stack: Stack) -> dict[str, Identity]:
    state = State.read(Home(stack.home))
    assert state is not None
    return {entry.name: entry.identity for entry in state.processes if entry.identity} | {
        "supervisor": state.supervisor
    }


def secret_words(stack: Stack) -> set[str]:
    words = {path.read_text().strip() for path in (stack.home / "secrets").glob("*.password")}
    assert len(words) > 2 * len(SERVICES)
    return words | {stack.endpoint["token"], stack.endpoint["admin_token"]}


def test_every_part_is_a_process_of_its_own(stack: Stack) -> None:
    rows = stack.processes()
    assert set(rows) == PARTS
    assert {row["state"] for row in rows.values()} == {"running"}
    assert len({row["pid"] for row in rows.values()}) == len(PARTS)
    assert all(set(row) == {"name", "pid", "state", "restarts", "started_at"} for row in rows.values())


def test_the_endpoint_is_for_its_owner_only(stack: Stack) -> None:
    found = (stack.home / "endpoint.json").stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_uid == os.geteuid()
    assert set(stack.endpoint) == {"url", "console_url", "nats_url", "token", "admin_token"}


def test_no_process_shows_a_secret_in_its_environment_or_command(stack: Stack) -> None:
    words = secret_words(stack)
    for name, identity in identities(stack).items():
        shown = Path(f"/proc/{identity.pid}/environ").read_text() + Path(f"/proc/{identity.pid}/cmdline").read_text()
        assert not [word for word in words if word in shown], f"{name} shows a secret"


def test_services_and_errands_are_given_their_secrets_as_files(stack: Stack) -> None:
    planned = EmbeddedStack.lay_out(Options(stack.home), {})
    given = {
        process.name: "\n".join((*process.command, *process.environment.values()))
        for stage in planned.stages()
        for process in (*stage.errands, *stage.processes)
    }
    assert {"prepare", "topology", *SERVICES} <= set(given)
    assert {name for name, shown in given.items() if any(word in shown for word in secret_words(stack))} == set()
    for service in SERVICES:
        environ = Path(f"/proc/{identities(stack)[service].pid}/environ").read_text().split("\0")
        names = {variable.partition("=")[0] for variable in environ}
        assert {"TIDEGATE_DATABASE_URL_FILE", "TIDEGATE_NATS_PASSWORD_FILE"} <= names
        assert not names & {"TIDEGATE_DATABASE_URL", "TIDEGATE_NATS_PASSWORD", "TIDEGATE_BOOTSTRAP_TOKENS"}


def test_only_the_loopback_address_is_listened_on(stack: Stack) -> None:
    inodes = {
        os.readlink(descriptor)
        for identity in identities(stack).values()
        for descriptor in Path(f"/proc/{identity.pid}/fd").iterdir()
        if descriptor.is_symlink()
    }
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:  # 0A is LISTEN, proc(5)
                listening.add(fields[1].split(":")[0])
    assert listening == {"0100007F"}


@pytest.fixture(scope="module")
def in_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, subprocess.Popen[str]]]:
    """Another stack, and its `tidegate up`, which stands in front."""
    other = Stack(tmp_path_factory.mktemp("front"))
    child = other.start("up", "--virtual-gpus", "1")
    try:
        eventually(lambda: child.poll() is not None or (other.home / "endpoint.json").exists(), "the stack to be up")
        yield other, child
    finally:
        if child.poll() is None:
            other.down()
        child.kill()
        child.wait()


def test_two_stacks_side_by_side_do_not_collide(stack: Stack, in_front: tuple[Stack, subprocess.Popen[str]]) -> None:
    other, _ = in_front
    assert other.endpoint["url"] != stack.endpoint["url"]
    assert other.endpoint["nats_url"] != stack.endpoint["nats_url"]
    mine, theirs = stack.run("true"), other.run("true")
    assert (mine["state"], theirs["state"]) == ("SUCCEEDED", "SUCCEEDED")
    assert stack.cli("show", theirs["id"]).code != 0


def test_ctrl_c_stops_the_stack_that_runs_in_front_and_no_other(
    stack: Stack, in_front: tuple[Stack, subprocess.Popen[str]]
) -> None:
    other, child = in_front
    running = identities(other)
    assert set(running) == PARTS | {"supervisor"}
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE_SECONDS) == 0
    assert [name for name, identity in running.items() if not identity.gone_within(PATIENCE_SECONDS)] == []
    assert not (other.home / "endpoint.json").exists()
    assert {row["state"] for row in stack.processes().values()} == {"running"}


def test_up_says_when_the_usual_port_is_in_use(first_up: tuple[Stack, str]) -> None:
    stack, said = first_up
    assert f"port {USUAL_HTTP_PORT} is in use by another program or stack, so the API has {port_of(stack)}" in said


def test_a_port_that_is_in_use_is_refused_by_name(stack: Stack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ended = Stack(tmp_path).cli("up", "--detach", "--http-port", port)
    assert ended.code == 3
    assert port in ended.err
    assert "--http-port" in ended.err


def test_a_second_up_with_other_options_says_that_they_are_not_applied(stack: Stack) -> None:
    ended = stack.cli("up", "--detach", "--virtual-gpus", "5")
    assert ended.code == 3
    assert "already running" in ended.err
    assert "--virtual-gpus 5 (it has 4)" in ended.err
    assert "tidegate down" in ended.err
    assert stack.cli("up", "--detach", "--virtual-gpus", "4").code == 0


def test_a_second_up_on_the_same_home_says_that_it_is_running(stack: Stack) -> None:
    ended = stack.cli("up", "--detach")
    assert ended.code == 0
    assert "already running" in ended.err
    assert stack.endpoint["url"] in ended.err


def test_a_second_up_finds_the_jobs_of_the_first_and_picks_up_what_runs(stack: Stack, gate: Path) -> None:
    ended = stack.run("true")
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 5"
    running = stack.cli("submit", "--json", "--no-snapshot", "--", "sh", "-c", script).json
    eventually(lambda: state_of(stack, running) == "RUNNING", "the job to run")
    before = stack.endpoint
    down = stack.cli("down")
    assert down.code == 0
    assert "1 job goes on running" in down.out
    up = stack.cli("up", "--detach")
    assert up.code == 0, up.err
    assert stack.endpoint == before
    assert "in use" not in up.out, "it has the port of last time again, which is nothing to speak of"
    assert (state_of(stack, ended), state_of(stack, running)) == ("SUCCEEDED", "RUNNING")
    gate.touch()
    eventually(lambda: state_of(stack, running) == "FAILED", "the end of the job")
    assert stack.cli("show", running["id"], "--json").json["exit"]["code"] == 5


def test_a_killed_supervisor_is_followed_by_an_up_that_finds_everything(stack: Stack) -> None:
    job = stack.run("true")
    before, endpoint = identities(stack), stack.endpoint
    assert before["supervisor"].send(signal.SIGKILL)
    for name in PARTS - {"runner"}:
        assert before[name].gone_within(PATIENCE_SECONDS), f"{name} outlived its supervisor"
    stack.up()
    assert stack.endpoint == endpoint
    assert state_of(stack, job) == "SUCCEEDED"
    assert stack.run("true")["state"] == "SUCCEEDED"


def test_kill_jobs_ends_what_runs(stack: Stack) -> None:
    job = stack.cli("submit", "--json", "--no-snapshot", "--", "sleep", "1000").json
    eventually(lambda: state_of(stack, job) == "RUNNING", "the job to run")
    ended = stack.cli("down", "--kill-jobs")
    assert ended.code == 0
    assert ended.out.endswith("ended 1 running job\n")
    stack.up()
    eventually(lambda: state_of(stack, job) in TERMINAL, "the job's end to be seen")
    assert stack.cli("show", job["id"], "--json").json["exit"]["signal"] == signal.SIGTERM


def test_down_and_kill_jobs_on_a_stopped_stack_leave_no_process_and_no_endpoint(stack: Stack) -> None:
    before = identities(stack)
    assert set(before) == PARTS | {"supervisor"}
    job = stack.cli("submit", "--json", "--no-snapshot", "--", "sleep", "1000").json
    eventually(lambda: state_of(stack, job) == "RUNNING", "the job to run")
    assert "stopped the stack" in stack.cli("down").out
    assert [name for name in PARTS - {"runner"} if not before[name].gone_within(PATIENCE_SECONDS)] == []
    assert not (stack.home / "endpoint.json").exists()
    again = stack.cli("down").out
    assert "no stack is running" in again
    assert "1 job goes on running" in again
    ended = stack.cli("down", "--kill-jobs")
    assert "stopped" not in ended.out
    assert "ended 1 running job" in ended.out
    assert stack.cli("down", "--kill-jobs").out == f"no stack is running in {stack.home}\n"
    assert [name for name, identity in before.items() if not identity.gone_within(PATIENCE_SECONDS)] == []
    assert {row["state"] for row in stack.processes().values()} == {"stopped"}
