"""Asking one or several jobs: each answer is said, a refusal is the server's sentence, a wait ends when it should."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from services.cli import commands, main
from tests.unit.cli.given import JOB, NOON, OTHER, PIPELINE, a_job, an_attempt
from tests.unit.cli.server import Answer, Answers, Asked, answering

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Answers], Any]:
    """Run `tidegate WORDS` in this process against a server; exit code, stdout and stderr."""

    @contextmanager
    def against(answers: Answers) -> Iterator[tuple[Run, Asked]]:
        with answering(answers) as asked:
            monkeypatch.setenv("TIDEGATE_URL", asked.url)
            monkeypatch.setenv("TIDEGATE_TOKEN", "none")

            def run(*words: str) -> tuple[int, str, str]:
                monkeypatch.setattr(sys, "argv", ["tidegate", *words])
                with pytest.raises(SystemExit) as end:
                    main.main()
                said = capsys.readouterr()
                return int(end.value.code or 0), said.out, said.err

            yield run, asked

    return against


def job(state: str, given: str = JOB, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = a_job(id=given, state=state, **fields).model_dump(mode="json")
    return answer


def refused(why: str) -> Answer:
    return 409, {"title": "conflict", "detail": why}


def test_what_is_so_already_is_no_error(run: Any) -> None:
    with run(lambda *_: (200, job("PAUSED"))) as (tidegate, asked):
        assert tidegate("pause", JOB, "--reason", "lunch") == (0, f"{JOB} PAUSED\n", "")
        assert asked.requests == [("POST", f"/v1/jobs/{JOB}/pause", {"reason": "lunch"})]


def test_what_is_not_so_yet_is_said_to_be_asked_for(run: Any) -> None:
    with run(lambda *_: (200, job("RUNNING", desired_state="paused"))) as (tidegate, _):
        assert tidegate("pause", JOB) == (0, f"{JOB} RUNNING; a pause was asked for\n", "")
    with run(lambda *_: (200, job("QUEUED", attempt=2))) as (tidegate, _):
        assert tidegate("resume", JOB) == (0, f"{JOB} QUEUED; attempt 2\n", "")


def test_a_refusal_is_the_servers_sentence_and_exit_code_3(run: Any) -> None:
    with run(lambda *_: refused("retry is not possible: it succeeded already")) as (tidegate, asked):
        assert tidegate("retry", "--force", JOB) == (3, "", "error: retry is not possible: it succeeded already\n")
        assert asked.requests[0][2] == {"force": True}


def test_of_several_one_that_is_refused_keeps_no_other_back(run: Any) -> None:
    def answers(method: str, path: str, body: Any) -> Answer:
        return refused("it failed already") if JOB in path else (200, job("STOPPED", OTHER))

    with run(answers) as (tidegate, _):
        assert tidegate("stop", JOB, OTHER) == (3, f"{OTHER} STOPPED\n", f"error: {JOB}: it failed already\n")
        code, out, _ = tidegate("stop", JOB, OTHER, "--json")
        assert (code, [one["id"] for one in json.loads(out)]) == (3, [OTHER])


def test_nothing_is_asked_where_one_is_no_id(run: Any) -> None:
    with run(lambda *_: (200, job("STOPPED"))) as (tidegate, asked):
        code, _, said = tidegate("stop", JOB, "j1")
        assert (code, asked.requests) == (2, [])
        assert "is no id" in said
        assert tidegate("hold", PIPELINE)[0] == 2


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        (["RUNNING", "PAUSED"], 0, f"{JOB} PAUSED\n"),
        (["RUNNING", "SUCCEEDED"], 1, f"{JOB} SUCCEEDED\n"),
    ],
)
def test_a_pause_is_waited_for(run: Any, states: list[str], code: int, said: str) -> None:
    asked_for = job("RUNNING", desired_state="paused", seq=5)

    def answers(method: str, path: str, body: Any) -> Answer:
        if path.endswith("/events"):
            return 200, [job(state, seq=6 + number) for number, state in enumerate(states)]
        return 200, asked_for if method == "POST" else job(states[-1])

    with run(answers) as (tidegate, _):
        first = f"{JOB} RUNNING; a pause was asked for\n"
        assert tidegate("pause", "--wait", JOB) == (code, first + said, "")


def test_who_waits_for_a_resumed_job_hears_of_its_pause_and_waits_on(run: Any) -> None:
    two, three = ([an_attempt(number, origin="resume")] for number in (2, 3))
    told = [
        job("RUNNING", seq=7, attempts=two),
        job("PAUSED", seq=8, message="paused: by ops", hint=f"go on with: tidegate resume {JOB}", attempts=two),
        job("QUEUED", seq=9, attempts=three),
        job("SUCCEEDED", seq=10, attempts=three),
    ]

    def answers(method: str, path: str, body: Any) -> Answer:
        if path.endswith("/events"):
            return 200, told
        return 200, job("QUEUED", seq=6, attempts=two) if method == "POST" else told[-1]

    with run(answers) as (tidegate, _):
        code, out, said = tidegate("resume", "--wait", JOB)
    assert (code, out) == (0, f"{JOB} QUEUED; attempt 2\n{JOB} SUCCEEDED\n")
    assert said.splitlines() == [
        "PAUSED by ops",
        f"what to do: go on with: tidegate resume {JOB} (this command waits for it)",
        "attempt 3 (resumed)",
    ]


def test_a_stop_by_force_has_no_grace(run: Any) -> None:
    with run(lambda *_: (200, job("RUNNING"))) as (tidegate, asked):
        code, _, said = tidegate("stop", "--force", "--grace", "30s", JOB)
        assert (code, asked.requests) == (2, [])
        assert "--force kills at once, without a grace" in " ".join(said.replace("│", " ").split())


def test_a_pipeline_is_deleted_as_one(run: Any) -> None:
    with run(lambda *_: (204, None)) as (tidegate, asked):
        assert tidegate("delete", PIPELINE) == (0, f"{PIPELINE} deleted\n", "")
        assert asked.requests == [("DELETE", f"/v1/pipelines/{PIPELINE}", None)]


def test_delete_asks_nothing_in_a_pipe(run: Any) -> None:
    with run(lambda *_: (204, None)) as (tidegate, asked):
        assert tidegate("delete", JOB, OTHER) == (0, f"{JOB} deleted\n{OTHER} deleted\n", "")
        assert asked.of("DELETE") == [f"/v1/jobs/{JOB}", f"/v1/jobs/{OTHER}"]


@pytest.mark.parametrize(("answer", "words", "gone"), [("n\n", [], False), ("y\n", [], True), ("", ["--yes"], True)])
def test_delete_asks_on_a_terminal(
    run: Any, monkeypatch: pytest.MonkeyPatch, answer: str, words: list[str], gone: bool
) -> None:
    monkeypatch.setattr(commands, "on_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text: answer == "y\n")
    with run(lambda *_: (204, None)) as (tidegate, asked):
        code, out, _ = tidegate("delete", JOB, *words)
        assert (code == 0, asked.of("DELETE") != []) == (gone, gone)
        assert out == (f"{JOB} deleted\n" if gone else "nothing was deleted\n")


def a_pipeline(word: str, *states: str) -> dict[str, Any]:
    steps = [
        {"job": one, "name": f"step-{index}", "index": index, "state": state, "desired_state": "run"}
        for index, (one, state) in enumerate(zip((JOB, OTHER), states, strict=True))
    ]
    named = {"tenant": "acme", "project": "vision", "user": "rin", "name": "train", "submitted_at": NOON.isoformat()}
    return named | {"id": PIPELINE, "word": word, "steps": steps}


def test_a_pipeline_is_explained_by_the_step_that_it_is_at(run: Any) -> None:
    explained = {"job": OTHER, "state": "QUEUED", "why": "held by rin", "cost": {"gpu_seconds": "0.000"}}

    def answers(method: str, path: str, body: Any) -> Answer:
        return 200, explained if path.endswith(f"/{OTHER}/explain") else a_pipeline("queued", "SUCCEEDED", "QUEUED")

    with run(answers) as (tidegate, _):
        code, out, _ = tidegate("explain", PIPELINE)
        assert (code, out.splitlines()[0]) == (0, f"step 2 of 2 of train  {PIPELINE}  queued")
        assert "  why    held by rin" in out.splitlines()
        assert json.loads(tidegate("explain", PIPELINE, "--json")[1]) == explained


def test_a_list_says_who_paused_a_pipeline(run: Any) -> None:
    paused = a_pipeline("paused", "SUCCEEDED", "PAUSED")
    paused["steps"][1]["message"] = "paused: by rin"
    with run(lambda *_: (200, {"items": [paused], "next_cursor": None})) as (tidegate, _):
        assert tidegate("pipelines")[1].splitlines()[1].endswith("  step-1: paused: by rin")


@pytest.mark.parametrize("option", ["--follow", "--wait"])
def test_a_pipeline_that_is_tried_again_is_watched_from_the_step_that_had_not_succeeded(run: Any, option: str) -> None:
    again = [an_attempt(2, origin="retry")]
    ended = {JOB: job("SUCCEEDED"), OTHER: job("SUCCEEDED", OTHER, attempt=2, attempts=again, seq=7)}

    def answers(method: str, path: str, body: Any) -> Answer:
        if method == "POST":
            return 200, a_pipeline("queued", "SUCCEEDED", "QUEUED")
        if path.endswith("/events"):
            return 200, [ended[OTHER]]
        if "/logs" in path:
            return 200, None
        if "/pipelines/" in path:
            return 200, a_pipeline("succeeded", "SUCCEEDED", "SUCCEEDED")
        return 200, ended[JOB if JOB in path else OTHER]

    with run(answers) as (tidegate, asked):
        code, said, _ = tidegate("retry", option, PIPELINE)
        assert (code, said.splitlines()[0]) == (0, f"{PIPELINE} queued")
        assert not any(f"{JOB}/events" in path for path in asked.of("GET"))
        if option == "--follow":
            assert said.splitlines()[1:3] == [f"step 2/2 step-1  {OTHER}", "  ✓ queued                1.00 s"]
        else:
            assert said.splitlines()[1:] == [f"{PIPELINE} succeeded"]


def test_a_route_is_told_as_a_command(run: Any) -> None:
    with run(lambda *_: (404, {"detail": "there is no job 'x': GET /v1/jobs lists those"})) as (tidegate, _):
        assert tidegate("show", JOB) == (3, "", "error: there is no job 'x': `tidegate ls` lists those\n")


def test_one_job_is_followed_and_no_more(run: Any) -> None:
    two = [an_attempt(2, origin="retry")]

    def answers(method: str, path: str, body: Any) -> Answer:
        if "/logs" in path:
            return 200, None
        if path.endswith("/events"):
            return 200, [job("SUCCEEDED", seq=7, attempts=two)]
        return 200, job("QUEUED", seq=6, attempts=two) if method == "POST" else job("SUCCEEDED", attempts=two)

    with run(answers) as (tidegate, asked):
        code, out, said = tidegate("retry", "--follow", JOB)
        assert (code, said) == (0, "")
        assert out.splitlines()[0] == f"{JOB} QUEUED; attempt 2"
        assert "  ✓ running job       1 min 30 s" in out
        logs = [path for path in asked.of("GET") if "/logs?" in path]
        assert {"stream=stdout" in path for path in logs} == {True, False}
        assert all("attempt=2" in path for path in logs)
        assert tidegate("retry", "--follow", JOB, OTHER)[0] == 2
