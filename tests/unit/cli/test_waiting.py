"""Who waits learns that a job is paused, how it goes on, and that an attempt begins: each once."""

from typing import Any

from services.cli.waiting import News, begins


def told(state: str, attempt: int = 1, **fields: Any) -> dict[str, Any]:
    """An event's job."""
    return {"state": state, "attempt": attempt, "attempts": [{"origin": "submit"}]} | fields


def test_a_pause_is_said_once_with_what_to_do() -> None:
    news = News(1)
    paused = told("PAUSED", message="paused: by rin (lunch)", hint="go on with: tidegate resume j1")
    assert news.new(told("RUNNING")) == []
    assert news.new(paused) == [
        "[magenta]PAUSED[/] by rin (lunch)",
        "what to do: go on with: tidegate resume j1 (this command waits for it)",
    ]
    assert news.new(paused) == []


def test_each_attempt_is_said_with_what_began_it() -> None:
    news = News(1)
    news.new(told("PAUSED"))
    assert news.new(told("QUEUED", 2, attempts=[{"origin": "resume"}])) == ["[bold]attempt 2[/] (resumed)"]
    assert news.new(told("RUNNING", 2, attempts=[{"origin": "resume"}])) == []
    assert len(news.new(told("PAUSED", 2, attempts=[{"origin": "resume"}]))) == 2


def test_an_automatic_retry_says_why_and_no_failed() -> None:
    message = "attempt 1: the command exited with code 3; it is tried again"
    lines = News(1).new(told("QUEUED", 2, attempts=[{"origin": "automatic"}], message=message))
    assert lines == ["[bold]attempt 2[/] (retried automatically): the command exited with code 3"]


def test_what_others_wrote_is_escaped() -> None:
    assert begins(2, "retry", "a\x1b[2J") == "[bold]attempt 2[/] (retried by hand): a\\x1b\\[2J".replace("\\[2J", "[2J")
