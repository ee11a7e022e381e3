"""How replicas are asked for and what they are called, and what the database is told of them."""

import inspect
from pathlib import Path

import pytest

from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.replicas import ReplicasError, names, parse
from infra.embedded.stack import Stack
from shared.contracts.subjects import SERVICES
from shared.runtime.database import Database
from tests.e2e.stacks import Stack as RunningStack


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


def test_up_refuses_what_is_no_number_of_replicas(tmp_path: Path) -> None:
    ended = RunningStack(tmp_path).cli("up", "--detach", "--replicas", "postgres=2")
    assert ended.code == 2
    assert "--replicas" in ended.err
