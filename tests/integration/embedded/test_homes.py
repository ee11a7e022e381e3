"""A home may have any name but for control characters, and a folder that cannot be one is refused in a sentence."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.embedded import commands
from infra.embedded.commands import HomeRefusedError, Options
from infra.embedded.home import Home
from infra.embedded.postgres import socket_folder
from infra.embedded.processes import Identity
from infra.embedded.state import State, hold
from shared.backends.local import layout
from tests.e2e.stacks import AS_ROOT, Stack
from tests.servers import NatsServer

ANY = Path("/any")
NAMES = [  # `test_going_on` has its stack in a home with all of them
    pytest.param("josé 日本", id="not ASCII"),
    pytest.param('it\'s a "home", 50% \\u00e9 $HOME #{x}', id="blanks and signs"),
    pytest.param("/".join(("long" * 30, "longer" * 20)), id="more than 200 characters"),
]


@pytest.mark.parametrize("name", [*NAMES, pytest.param("a\tb\x01c\x08", id="control characters")])
def test_nats_keeps_its_streams_where_the_folder_says_whatever_its_name(tmp_path: Path, name: str) -> None:
    server = NatsServer(tmp_path / name)
    server.start()
    server.stop()
    assert server.store.is_dir()


def test_a_comma_keeps_the_socket_out_of_the_home() -> None:
    assert "," not in str(socket_folder(Path("/srv/a,b/pg"), None))


@pytest.mark.parametrize(
    ("root", "why"),
    [
        pytest.param("/proc/foo", "No such file", id="where no folder can be made"),
        pytest.param("/etc/passwd", "Not a directory", id="a file"),
    ],
)
def test_up_refuses_a_home_that_cannot_be_one_in_a_sentence(root: str, why: str) -> None:
    with pytest.raises(HomeRefusedError, match=why) as refusal:
        commands.up(Options(home=Path(root), detach=True))
    assert "--home" in str(refusal.value)
    assert not Path(root).is_dir()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param("/srv/a\nb", "line break", id="a line break"),
        pytest.param("/srv/a\x1bb", "control character", id="a control character"),
        pytest.param("/srv/a\udce9b", "cannot be a stack's home", id="bytes that are no text"),
    ],
)
def test_a_path_that_configuration_files_cannot_name_is_no_home(path: str, why: str) -> None:
    with pytest.raises(HomeRefusedError, match=why):
        Home.at(Path(path))


def test_a_folder_shared_by_everybody_is_no_home_and_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(HomeRefusedError, match="everybody may write"):
        Home(shared).make()
    assert shared.stat().st_mode & 0o7777 == 0o1777
    assert list(shared.iterdir()) == []


@pytest.fixture
def elsewhere() -> Iterator[Stack]:
    """A command line whose home a test names."""
    with tempfile.TemporaryDirectory() as folder:
        yield Stack(Path(folder))


@pytest.mark.parametrize("words", [("up", "-d"), ("up",), ("down",), ("ps",)], ids=" ".join)
@pytest.mark.parametrize("given", ["/etc/passwd", ""], ids=["a file", "empty"])
def test_every_command_refuses_such_a_home_without_a_traceback(
    elsewhere: Stack, words: tuple[str, ...], given: str
) -> None:
    elsewhere.environ["TIDEGATE_HOME"] = given
    ended = elsewhere.cli(*words)
    assert ended.code == 3
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) == 1
    assert list(elsewhere.home.iterdir()) == []


def test_an_empty_home_option_is_not_this_very_folder(elsewhere: Stack) -> None:
    ended = elsewhere.cli("up", "-d", "--home", "")
    assert ended.code == 2
    assert "it is empty" in ended.err
    assert list(elsewhere.home.iterdir()) == []


@pytest.mark.skipif(not AS_ROOT, reason="only root can be somebody else for a while")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda home: commands.up(Options(home=home, detach=True)), id="up"),
        pytest.param(commands.down, id="down"),
        pytest.param(commands.ps, id="ps"),
        pytest.param(lambda home: commands.logs(home, "api"), id="logs"),
    ],
)
def test_a_home_that_one_may_not_read_is_refused_in_a_sentence(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    os.seteuid(65534)
    try:
        with pytest.raises(HomeRefusedError, match="you may not use"):
            command(closed)
    finally:
        os.seteuid(0)


def test_a_nats_that_cannot_run_ends_up_with_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "nats-server"
    broken.parent.mkdir()
    broken.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo nats-server: v2.14.3 && exit\necho the river is dry\nexit 1\n"
    )
    broken.chmod(0o755)
    stack = Stack(tmp_path / "home", environ={"TIDEGATE_NATS_BIN": str(broken)})
    stack.home.mkdir()
    ended = stack.cli("up", "-d")
    assert ended.code == 1
    assert "nats cannot be started" in ended.err
    assert "the river is dry" in ended.err
    assert "goes on trying" not in ended.err
    assert {row["state"] for row in stack.processes().values()} == {"stopped"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Home]:
    """A home as one whose stack runs with 3 virtual GPUs and 4 slots at port 1234 looks."""
    home = Home(tmp_path / "home")
    home.make()
    child = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        (home.local / layout.HOST_RECORD).write_text('{"gpus_total": 3, "slots_total": 4}')
        State(Identity.of_child(child), ready=True, ports={"http": 1234}).write(home)
        with hold(home):
            yield home
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(home.root)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        pytest.param(Options(ANY, virtual_gpus=5), "--virtual-gpus 5 (it has 3)", id="GPUs"),
        pytest.param(Options(ANY, slots=1), "--slots 1 (it has 4)", id="slots"),
        pytest.param(Options(ANY, http_port=1235), "--http-port 1235 (it has 1234)", id="port"),
        pytest.param(Options(ANY, allow_tenants=True), "--allow-tenants", id="tenants"),
        pytest.param(Options(ANY, clusters=Path("/dev/null")), "--clusters /dev/null (it has none)", id="clusters"),
    ],
)
def test_up_on_a_running_stack_names_the_options_that_it_does_not_apply(
    running: Home, asked: Options, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.up(replace(asked, home=running.root, detach=True)) == 3
    said = capsys.readouterr().err
    assert "already running" in said
    assert f"not applied: {told}" in said
    assert "tidegate down" in said


def test_up_on_a_running_stack_that_has_what_is_asked_for_is_content(
    running: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.up(Options(home=running.root, detach=True, virtual_gpus=3, slots=4, http_port=1234)) == 0
    assert "not applied" not in capsys.readouterr().err
