"""What `tidegate restart` leaves alone: stand-ins for a stack whose supervisor starts nothing again."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.embedded import rolling
from infra.embedded.home import Home
from infra.embedded.processes import Identity
from infra.embedded.state import Entry, State, Word, hold


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setattr(rolling, "_RESTART_SECONDS", 0.2)
    home = Home(tmp_path / "home")
    home.make()
    with hold(home):
        yield home


@pytest.fixture
def processes(home: Home) -> Iterator[dict[str, Identity]]:
    """A gatekeeper, another one that does not answer, and a watcher."""
    shown: dict[str, Word] = {"gatekeeper": "running", "gatekeeper-2": "starting", "watcher": "running"}
    with ExitStack() as ends:
        children = {name: ends.enter_context(subprocess.Popen(["/bin/sleep", "1000"])) for name in shown}
        for child in children.values():
            ends.callback(child.kill)
        identities = {name: Identity.of_child(child) for name, child in children.items()}
        entries = tuple(Entry(name, identities[name], shown[name], 0, None, "log") for name in shown)
        State(identities["watcher"], processes=entries, servers_ready=True).write(home)
        yield identities


def test_a_replica_is_left_alone_while_the_other_one_of_its_service_is_not_ready(
    home: Home, processes: dict[str, Identity], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rolling.restart(home, ["gatekeeper"]) == 1
    assert "gatekeeper-2 is not ready, so gatekeeper was left alone" in capsys.readouterr().err
    assert all(identity.alive() for identity in processes.values())


def test_nothing_more_is_restarted_after_what_does_not_get_ready(
    home: Home, processes: dict[str, Identity], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rolling.restart(home, ["gatekeeper-2", "watcher"]) == 1
    assert "gatekeeper-2 was ended and is not ready after 0.2 s" in capsys.readouterr().err
    assert [name for name, identity in processes.items() if not identity.alive()] == ["gatekeeper-2"]


def test_two_restarts_at_once_are_refused(
    home: Home, processes: dict[str, Identity], capsys: pytest.CaptureFixture[str]
) -> None:
    with hold(home, "restart"):
        assert rolling.restart(home, ["watcher"]) == 3
    assert "another `tidegate restart` is at work" in capsys.readouterr().err
    assert processes["watcher"].alive()


def test_a_name_of_no_process_is_refused_with_those_there_are(
    home: Home, processes: dict[str, Identity], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rolling.restart(home, ["watcher", "gatekeeper-3", "runner"]) == 3
    told = capsys.readouterr().err
    assert "'gatekeeper-3', 'runner' cannot be restarted" in told
    assert "gatekeeper, gatekeeper-2, watcher" in told
    assert processes["watcher"].alive()


def test_there_is_nothing_to_restart_where_no_stack_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rolling.restart(Home(tmp_path / "nowhere"), []) == 3
    assert "no stack is running" in capsys.readouterr().err
