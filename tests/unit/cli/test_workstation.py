"""How the command line speaks of workstations: started, waited for, where they are, what is asked of them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.cli import main
from tests.unit.cli.given import JOB, a_job, at
from tests.unit.cli.server import Answer, Answers, Asked, answering

Run = Callable[..., tuple[int, str, str]]
URL = f"/v1/workstations/{JOB}/proxy/"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[Answers], Any]:
    """Run `tidegate workstation WORDS` in this process against a server; exit code, stdout and stderr."""

    @contextmanager
    def against(answers: Answers) -> Iterator[tuple[Run, Asked]]:
        with answering(answers) as asked:
            monkeypatch.setenv("TIDEGATE_URL", asked.url)
            monkeypatch.setenv("TIDEGATE_TOKEN", "none")
            monkeypatch.chdir(tmp_path)

            def run(*words: str) -> tuple[int, str, str]:
                monkeypatch.setattr(sys, "argv", ["tidegate", "workstation", *words])
                with pytest.raises(SystemExit) as end:
                    main.main()
                said = capsys.readouterr()
                return int(end.value.code or 0), said.out, said.err

            yield run, asked

    return against


def desk(
    state: str, *, idle: dict[str, Any] | None = None, position: int | None = None, **fields: Any
) -> dict[str, Any]:
    answer: dict[str, Any] = a_job(state=state, **fields).model_dump(mode="json")
    return answer | {"workstation": idle or {}, "position": position, "url": URL}


def up_by_and_by(method: str, path: str, body: Any) -> Answer:
    """One that comes up, and gives tickets."""
    if path.endswith("/ticket"):
        return 201, {"url": f"{URL}?tidegate-ticket=abc", "expires_at": at(120).isoformat()}
    if path.endswith("/events"):
        return 200, [desk("SUBMITTED", seq=8), desk("RUNNING", phase="active", seq=9)]
    return 201 if path.endswith("/workstations") else 200, desk(
        "QUEUED" if method == "POST" else "RUNNING", phase=None if method == "POST" else "active"
    )


def test_start_says_what_was_agreed_and_what_to_do_next(run: Any) -> None:
    idle = {"idle_suspend_seconds": 1800}
    with run(lambda *_: (201, desk("QUEUED", idle=idle))) as (tidegate, asked):
        words = ("--idle-suspend", "30m", "--max-lifetime", "8h", "--gpus", "1", "--env", "A=b", "--no-snapshot")
        code, out, err = tidegate("start", *words, "--", "sh", "-c", "serve $TIDEGATE_PORT")
    assert (code, err) == (0, "")
    assert "suspended once it was idle for 30 min" in out
    assert f"tidegate workstation url {JOB}" in out
    assert asked.requests[0][2] == {
        "command": ["sh", "-c", "serve $TIDEGATE_PORT"],
        "idle_suspend_seconds": 1800,
        "max_lifetime_seconds": 28800,
        "gpus": 1,
        "env": {"A": "b"},
    }


def test_start_waits_until_it_is_up_and_prints_its_address(run: Any) -> None:
    with run(up_by_and_by) as (tidegate, asked):
        code, out, _ = tidegate("start", "--no-snapshot", "--wait")
        assert code == 0
        assert out.splitlines()[-1] == f"{asked.url}{URL}?tidegate-ticket=abc"
        assert asked.requests[0][2] == {}, "without a command it is what the server has for that"


def test_url_prints_the_address_alone(run: Any) -> None:
    with run(up_by_and_by) as (tidegate, asked):
        assert tidegate("url", JOB) == (0, f"{asked.url}{URL}?tidegate-ticket=abc\n", "")


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (desk("PAUSED", phase="suspended"), f"it is suspended. Bring it up: tidegate workstation resume {JOB} --wait"),
        (desk("STOPPED", message="stopped by rin"), "it is STOPPED, stopped by rin"),
        (desk("QUEUED", position=3), "position 3 in the line"),
    ],
    ids=["suspended", "ended", "waiting"],
)
def test_url_of_one_that_is_not_up_says_why_and_asks_for_no_ticket(run: Any, view: dict[str, Any], said: str) -> None:
    with run(lambda *_: (200, view)) as (tidegate, asked):
        code, out, err = tidegate("url", JOB)
    assert (code, out, asked.of("POST")) == (1, "", [])
    assert said in err


def test_each_wish_says_how_it_stands_then(run: Any) -> None:
    for words, view, body, said in (
        (
            ["suspend"],
            desk("RUNNING", phase="suspending", desired_state="paused"),
            {},
            "suspending; its files are being",
        ),
        (["resume"], desk("QUEUED", position=2, attempt=2), {}, "QUEUED; "),
        (["stop"], desk("RUNNING", phase="active", desired_state="stopped"), {"force": False}, "a stop was asked for"),
        (["snooze"], desk("RUNNING", phase="active"), {"seconds": 1800}, "active"),
        (["snooze", "2h"], desk("RUNNING", phase="active"), {"seconds": 7200}, "active"),
    ):
        action, *more = words
        with run(lambda *_, view=view: (200, view)) as (tidegate, asked):
            code, out, err = tidegate(action, JOB, *more)
        assert (code, err) == (0, ""), words
        assert said in out
        assert asked.requests == [("POST", f"/v1/workstations/{JOB}/{action}", body)]


def test_an_idle_one_says_when_it_is_suspended_and_how_to_put_that_off(run: Any) -> None:
    now = datetime.now(UTC)
    idle = {"idle_suspend_seconds": 600, "idle_since": now, "suspends_at": now + timedelta(seconds=300)}
    given = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in idle.items()}
    view = desk("RUNNING", phase="active", idle=given)
    with run(lambda *_: (200, view)) as (tidegate, _):
        assert f"put it off: tidegate workstation snooze {JOB}" in tidegate("show", JOB)[1]
    with run(lambda *_: (200, {"items": [view], "next_cursor": None})) as (tidegate, _):
        listed = tidegate("ls")[1]
        assert "active" in listed
        assert "idle since" in listed


def test_a_list_of_none_says_how_to_start_one(run: Any) -> None:
    with run(lambda *_: (200, {"items": [], "next_cursor": None})) as (tidegate, _):
        assert "tidegate workstation start" in tidegate("ls")[1]
        assert json.loads(tidegate("ls", "--json")[1]) == []


def test_a_refusal_is_the_servers_sentence(run: Any) -> None:
    why = "command: none was given, and JupyterLab is not installed where jobs run"
    with run(lambda *_: (422, {"title": "invalid", "detail": why})) as (tidegate, _):
        assert tidegate("start", "--no-snapshot") == (3, "", f"error: {why}\n")
    with run(lambda *_: (200, {})) as (tidegate, asked):
        for words in (
            ["show", "p1"],
            ["snooze", JOB, "30"],
            ["start", "--idle-suspend", "never"],
            ["start", "--env", "A"],
        ):
            assert tidegate(*words)[0] == 2, words
        assert asked.requests == []
