"""The whole embedded stack through the `tidegate` command: up, ps, down, killed parts, second starts, awkward homes."""

import json
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.home import Home
from infra.embedded.processes import Account, Identity
from infra.embedded.reach import can_reach
from infra.embedded.state import State
from shared.contracts.subjects import SERVICES
from tests.e2e.stacks import AS_ROOT, TERMINAL, Stack, eventually, unprivileged_user

ROOT = Path(__file__).resolve().parents[3]
PARTS = {"postgres", "nats", "runner", *SERVICES}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below folders with mode 0700, as those of pytest and of root are."""
    folder = tmp_path_factory.mktemp("stack")
    assert folder.parent.stat().st_mode & 0o077 == 0
    return folder


@pytest.fixture(scope="module")
def the_stack(home: Path) -> Iterator[Stack]:
    stack = Stack(home)
    stack.up("--virtual-gpus", "4")
    yield stack
    stack.down()


@pytest.fixture
def stack(the_stack: Stack) -> Stack:
    """The module's stack, up; a test that stopped it finds it up again."""
    if not (the_stack.home / "endpoint.json").exists():
        the_stack.up("--virtual-gpus", "4")
    return the_stack


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that is not there yet, in a folder that jobs of every tenant may look into."""
    with tempfile.TemporaryDirectory(prefix="tidegate-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "gate"


def state_of(stack: Stack, job: dict[str, Any]) -> str:
    return str(stack.cli("show", job["id"], "--json").json["state"])


def identities(stack: Stack) -> dict[str, Identity]:
    state = State.read(Home(stack.home))
    assert state is not None
    return {entry.name: entry.identity for entry in state.processes if entry.identity} | {
        "supervisor": state.supervisor
    }


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
    words = {path.read_text().strip() for path in (stack.home / "secrets").glob("*.password")}
    words |= {stack.endpoint["token"], stack.endpoint["admin_token"]}
    for name, identity in identities(stack).items():
        shown = Path(f"/proc/{identity.pid}/environ").read_text() + Path(f"/proc/{identity.pid}/cmdline").read_text()
        assert not [word for word in words if word in shown], f"{name} shows a secret"


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


def test_two_stacks_side_by_side_do_not_collide(stack: Stack, tmp_path: Path) -> None:
    other = Stack(tmp_path / "other")
    other.home.mkdir()
    other.up("--virtual-gpus", "1")
    try:
        assert other.endpoint["url"] != stack.endpoint["url"]
        assert other.endpoint["nats_url"] != stack.endpoint["nats_url"]
        mine, theirs = stack.run("true"), other.run("true")
        assert (mine["state"], theirs["state"]) == ("SUCCEEDED", "SUCCEEDED")
        assert stack.cli("show", theirs["id"]).code != 0
    finally:
        other.down()
    assert {row["state"] for row in stack.processes().values()} == {"running"}


def test_a_port_that_is_in_use_is_refused_by_name(stack: Stack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ended = Stack(tmp_path).cli("up", "--detach", "--http-port", port)
    assert ended.code == 3
    assert port in ended.err
    assert "--http-port" in ended.err


def test_a_second_up_on_the_same_home_says_that_it_is_running(stack: Stack) -> None:
    ended = stack.cli("up", "--detach")
    assert ended.code == 0
    assert "already running" in ended.err
    assert stack.endpoint["url"] in ended.err


@pytest.mark.parametrize("part", ["postgres", "nats", "runner"])
def test_jobs_go_on_though_a_server_is_killed(stack: Stack, part: str) -> None:
    before = stack.processes()[part]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: stack.processes()[part]["restarts"] == before["restarts"] + 1, f"{part} to be started again")
    eventually(lambda: stack.processes()[part]["state"] == "running", f"{part} to answer")
    assert stack.run("true")["state"] == "SUCCEEDED"


def test_down_leaves_no_process_and_no_endpoint(stack: Stack) -> None:
    before = identities(stack)
    assert set(before) == PARTS | {"supervisor"}
    stack.down()
    assert [name for name, identity in before.items() if not identity.gone_within(5)] == []
    assert not (stack.home / "endpoint.json").exists()
    assert {row["state"] for row in stack.processes().values()} == {"stopped"}
    assert "no stack is running" in stack.cli("down").out


def test_a_second_up_finds_the_jobs_of_the_first_and_picks_up_what_runs(stack: Stack, gate: Path) -> None:
    ended = stack.run("true")
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 5"
    running = stack.cli("submit", "--json", "--no-snapshot", "--", "sh", "-c", script).json
    eventually(lambda: state_of(stack, running) == "RUNNING", "the job to run")
    before = stack.endpoint
    down = stack.cli("down")
    assert down.code == 0
    assert "1 job goes on running" in down.out
    stack.up()
    assert stack.endpoint == before
    assert (state_of(stack, ended), state_of(stack, running)) == ("SUCCEEDED", "RUNNING")
    gate.touch()
    eventually(lambda: state_of(stack, running) == "FAILED", "the end of the job")
    assert stack.cli("show", running["id"], "--json").json["exit"]["code"] == 5


def test_a_killed_supervisor_is_followed_by_an_up_that_finds_everything(stack: Stack) -> None:
    job = stack.run("true")
    before = identities(stack)
    assert before["supervisor"].send(signal.SIGKILL)
    for name in PARTS - {"runner"}:
        assert before[name].gone_within(30), f"{name} outlived its supervisor"
    stack.up()
    assert state_of(stack, job) == "SUCCEEDED"
    assert stack.run("true")["state"] == "SUCCEEDED"


def test_kill_jobs_ends_what_runs(stack: Stack) -> None:
    job = stack.cli("submit", "--json", "--no-snapshot", "--", "sleep", "1000").json
    eventually(lambda: state_of(stack, job) == "RUNNING", "the job to run")
    ended = stack.cli("down", "--kill-jobs")
    assert ended.code == 0
    assert "goes on running" not in ended.out
    stack.up()
    eventually(lambda: state_of(stack, job) in TERMINAL, "the job's end to be seen")
    assert stack.cli("show", job["id"], "--json").json["exit"]["signal"] == signal.SIGTERM


def test_ctrl_c_stops_a_stack_that_runs_in_front(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    child = stack.start("up", "--virtual-gpus", "1")
    try:
        eventually(lambda: (tmp_path / "endpoint.json").exists(), "the stack to be up")
        running = identities(stack)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    finally:
        child.kill()
    assert [name for name, identity in running.items() if name != "supervisor" and not identity.gone_within(5)] == []


@pytest.mark.skipif(not AS_ROOT, reason="the other tests run as a normal user already")
def test_a_normal_user_runs_a_stack_without_any_rights() -> None:
    user = unprivileged_user()
    account = Account(user.pw_name, user.pw_uid, user.pw_gid)
    python = _python_for(account)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, account.uid, account.gid)
        stack = Stack(
            Path(folder),
            environ={"PYTHONPATH": os.pathsep.join(_import_path())},
            command=(str(python), "-c", "from services.cli.main import main; main()"),
            account=account,
        )
        stack.up("--virtual-gpus", "1")
        try:
            pids = [row["pid"] for row in stack.processes().values()]
            assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {account.uid}
            assert stack.run("id", "-u")["state"] == "SUCCEEDED"
            assert json.loads((stack.home / "endpoint.json").read_text())["token"]
            refused = stack.cli("token", "create", "--tenant", "rival", "--user", "eve")
            assert refused.code == 3
            assert "root" in refused.err
        finally:
            stack.down()


def _import_path() -> list[str]:
    """Where another interpreter finds what this one has installed."""
    return [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]


def _python_for(account: Account) -> Path:
    """An interpreter of this version, with everything it needs, that the account can run."""
    same = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (Path(sys.executable), Path("/usr/bin") / same, Path("/usr/local/bin") / same):
        if python.exists() and all(can_reach(account, path) for path in (python, *map(Path, _import_path()))):
            return python
    pytest.skip(f"the user {account.name} can run no {same} here, or cannot read {ROOT}")
