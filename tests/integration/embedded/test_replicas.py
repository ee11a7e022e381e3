"""Several processes of a service: how they are asked for, what they are called, and one door for all of `api`."""

import inspect
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from infra.embedded import commands
from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.replicas import ReplicasError, names, parse
from infra.embedded.stack import Stack
from infra.embedded.state import State
from shared.contracts.subjects import SERVICES
from shared.runtime.database import Database
from tests.e2e.load import Requests
from tests.e2e.stacks import Stack as RunningStack
from tests.e2e.stacks import eventually
from tests.integration.embedded.conftest import rows_of


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        pytest.param("gatekeeper=2", {"gatekeeper": 2}, id="one service"),
        pytest.param(" gatekeeper = 2 , api=8", {"gatekeeper": 2, "api": 8}, id="two, with blanks"),
        pytest.param("all=2", dict.fromkeys(SERVICES, 2), id="all"),
        pytest.param("api=1,all=2", dict.fromkeys(SERVICES, 2) | {"api": 1}, id="all but one, named first"),
    ],
)
def test_numbers_of_replicas_are_given_by_service(text: str, counts: dict[str, int]) -> None:
    assert parse(text) == counts


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("gatekeeper=0", "whole number from 1 to 8", id="none"),
        pytest.param("gatekeeper=9", "whole number from 1 to 8", id="too many"),
        pytest.param("gatekeeper=-1", "whole number from 1 to 8", id="less than none"),
        pytest.param("gatekeeper=two", "whole number from 1 to 8", id="a word"),
        pytest.param("gatekeeper=²", "whole number from 1 to 8", id="a digit that is none"),
        pytest.param("gatekeeper=", "whole number from 1 to 8", id="nothing"),
        pytest.param("2", "SERVICE=N", id="a number alone"),
        pytest.param("", "SERVICE=N", id="empty"),
        pytest.param("gatekeeper=2,", "SERVICE=N", id="a comma at the end"),
        pytest.param("runner=2", "name one of api, gatekeeper", id="what stays single"),
        pytest.param("gatekeeper=2,gatekeeper=3", "named twice", id="twice"),
    ],
)
def test_what_is_no_number_of_replicas_is_refused_with_what_is_right(text: str, sentence: str) -> None:
    with pytest.raises(ReplicasError, match=sentence):
        parse(text)


def test_the_first_replica_has_the_plain_name() -> None:
    assert list(names("api", {})) == ["api"]
    assert list(names("api", {"api": 3})) == ["api", "api-2", "api-3"]


def test_the_database_has_room_for_the_connections_of_every_replica(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    first, *_ = Stack.lay_out(Options(home.root, replicas=parse("all=8")), {}).stages()
    postgres = next(process for process in first.processes if process.name == "postgres")
    room = next(word.partition("=")[2] for word in postgres.command if word.startswith("--max_connections="))
    a_pool = int(inspect.signature(Database).parameters["max_connections"].default)
    assert int(room) > 8 * len(SERVICES) * a_pool


def test_every_replica_is_a_process_that_knows_its_name_and_answers_on_a_port_of_its_own(
    replicated: RunningStack,
) -> None:
    rows = rows_of(replicated)
    replicas = ["api", "api-2", "gatekeeper", "gatekeeper-2", "gatekeeper-3"]
    assert set(rows) == {"postgres", "nats", "runner", "topology", *SERVICES, *replicas}
    assert {row["state"] for row in rows.values()} == {"running"}
    environs = [Path(f"/proc/{rows[name]['pid']}/environ").read_text().split("\0") for name in replicas]
    assert all(f"TIDEGATE_REPLICA={name}" in environ for name, environ in zip(replicas, environs, strict=True))
    state = State.read(Home(replicated.home))
    assert state is not None
    asked = {entry.ready for entry in state.processes if entry.name in replicas}
    assert len(asked) == len(replicas)
    assert None not in asked


def test_every_replica_has_a_log_of_its_own(replicated: RunningStack) -> None:
    shown = replicated.cli("logs", "gatekeeper-3")
    assert shown.code == 0
    assert "gatekeeper: started" in shown.out
    missing = replicated.cli("logs", "gatekeeper-4")
    assert missing.code == 3
    assert "gatekeeper-3" in missing.err


def test_another_number_of_replicas_is_not_applied_to_a_stack_that_runs(
    replicated: RunningStack, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {"gatekeeper": 3, "api": 2, "stager": 1}
    assert commands.up(Options(replicated.home, replicas=same, detach=True)) == 0
    assert commands.up(Options(replicated.home, replicas=same | {"gatekeeper": 2, "launcher": 2}, detach=True)) == 3
    told = capsys.readouterr().err
    assert "--replicas gatekeeper=2 (it has 3), --replicas launcher=2 (it has 1)." in told
    assert "stager" not in told


def test_up_refuses_what_is_no_number_of_replicas(tmp_path: Path) -> None:
    ended = RunningStack(tmp_path).cli("up", "--detach", "--replicas", "postgres=2")
    assert ended.code == 2
    assert "--replicas" in ended.err


def test_no_request_is_refused_while_all_replicas_of_api_end_and_start(replicated: RunningStack) -> None:
    """Requests wait at the door for the first that is back."""
    before = rows_of(replicated)
    with Requests(replicated) as requests:
        requests.more()
        for name in ("api", "api-2"):
            os.kill(before[name]["pid"], signal.SIGTERM)
        eventually(lambda: _are_back(replicated, before), "both to be back")
        requests.more()
    assert requests.failed == []


def _are_back(stack: RunningStack, before: dict[str, dict[str, Any]]) -> bool:
    rows = rows_of(stack)
    return all(
        rows[name]["state"] == "running" and rows[name]["restarts"] == before[name]["restarts"] + 1
        for name in ("api", "api-2")
    )
