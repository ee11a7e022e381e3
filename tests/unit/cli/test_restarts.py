"""The server is started again while a job is watched: what is waited for is told, nothing is lost or said twice, and
who gives up learns that the job goes on."""

from typing import Any

import pytest

from services.cli.follow import follow
from services.cli.interrupted import says_that_it_goes_on
from services.cli.main import exit_code
from services.cli.waiting import ended, paused_or_ended, settle, wait, wait_pipeline
from shared.client import outage
from shared.client.client import Tidegate
from shared.client.endpoint import Endpoint
from shared.client.errors import Refused, ServerGone
from shared.client.views import PipelineView, StepView
from tests.unit.cli.given import JOB, PIPELINE, a_job
from tests.unit.cli.server import Answer, Asked, Broken, Log, answering


def job(state: str, seq: int, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = a_job(state=state, seq=seq, **fields).model_dump(mode="json")
    return answer


def client(asked: Asked) -> Tidegate:
    return Tidegate(Endpoint(asked.url, "none", None, "test"), answered=True)


def test_a_wait_goes_on_where_the_server_closed_its_stream_and_was_away() -> None:
    streams = iter([(200, [job("RUNNING", 6)]), (200, Broken()), (200, [job("SUCCEEDED", 7)])])
    looks = iter([(200, job("RUNNING", 6)), (200, Broken()), (200, job("SUCCEEDED", 7))])
    with answering(lambda _, path, __: next(streams if "/events" in path else looks)) as asked:
        assert wait(client(asked), a_job(state="QUEUED", seq=5), until=ended).state == "SUCCEEDED"


def test_a_pause_that_was_over_at_once_is_waited_for_again() -> None:
    streams = iter([(200, [job("PAUSED", 6)]), (200, [job("PAUSED", 8)])])
    looks = iter([(200, job("QUEUED", 7)), (200, job("PAUSED", 8))])
    with answering(lambda _, path, __: next(streams if "/events" in path else looks)) as asked:
        assert wait(client(asked), a_job(state="RUNNING", seq=5), until=paused_or_ended).seq == 8


def test_a_pipeline_is_waited_for_through_a_restart() -> None:
    step: dict[str, Any] = {"job": JOB, "name": "one"}
    known: dict[str, Any] = {"id": PIPELINE, "steps": (StepView.model_construct(**step),)}
    broken = {"jobs": 1, "pipelines": 1}

    def answers(method: str, path: str, body: Any) -> Answer:
        kind = path.split("/")[2]
        broken[kind] -= 1
        if broken[kind] >= 0:
            return 200, Broken()
        return (200, job("SUCCEEDED", 7)) if kind == "jobs" else (404, {"detail": "it was asked for"})

    with answering(answers) as asked:
        with pytest.raises(Refused, match="it was asked for"):
            wait_pipeline(client(asked), PipelineView.model_construct(**known))
        broken["pipelines"] = 1
        with pytest.raises(Refused, match="it was asked for"):
            settle(client(asked), PIPELINE)


def test_a_followed_log_begins_where_the_server_is_away_and_goes_on_where_it_broke(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept, dropped = b"epoch 1\nepoch 2\n", list[str]()

    def answers(method: str, path: str, body: Any) -> Answer:
        if len(dropped) < 6 and ("/logs" in path or dropped):
            dropped.append(path)
            return 200, Broken()
        if "/logs" in path:
            log, offset = kept if "stdout" in path else b"", int(path.rpartition("offset=")[2])
            piece = Log(log[offset:][:11], len(log))
            return 200, Broken(piece) if offset == 0 and log else piece
        return 200, [job("RUNNING", 6), job("SUCCEEDED", 9)] if path.endswith("/events") else job("SUCCEEDED", 9)

    with answering(answers) as asked:
        assert follow(client(asked), JOB).state == "SUCCEEDED"
    said = capsys.readouterr()
    assert [line for line in said.out.splitlines() if "|" in line] == ["    | epoch 1", "    | epoch 2"]
    assert said.err == ""


def test_a_log_that_cannot_be_shown_is_named_and_the_job_is_not_to_be_submitted_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outage, "OUTAGE_SECONDS", 0.2)

    def answers(method: str, path: str, body: Any) -> Answer:
        if "/logs" in path:
            return 200, Broken()
        return 200, [job("SUCCEEDED", 9)] if path.endswith("/events") else job("SUCCEEDED", 9)

    with answering(answers) as asked:
        assert follow(client(asked), JOB).state == "SUCCEEDED"
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"`tidegate logs -f {JOB}`" in said
    assert f"`tidegate logs -f {JOB} --stderr`" in said
    assert "give the command again" not in said


@pytest.mark.parametrize(
    ("watched", "command"),
    [
        pytest.param(JOB, f"tidegate logs -f {JOB}", id="a job"),
        pytest.param(PIPELINE, f"tidegate show {PIPELINE}", id="a pipeline"),
    ],
)
def test_who_gives_up_on_the_server_learns_that_what_was_watched_goes_on(watched: str, command: str) -> None:
    with pytest.raises(ServerGone) as gone, says_that_it_goes_on(watched):
        raise ServerGone("the server did not come back within 45 s")
    assert exit_code(gone.value) == 4
    assert str(gone.value).endswith(f"{watched} goes on without this command: `{command}` looks at it again")
