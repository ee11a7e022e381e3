"""A stream that ends before what it tells of is taken up where it ended, however that came; a server that does not come
back is waited for so long and no longer."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.client import outage
from shared.client.client import Tidegate
from shared.client.endpoint import Endpoint
from shared.client.errors import NoServer, Refused, ServerGone, Unavailable
from tests.unit.cli.given import JOB, a_job, an_attempt
from tests.unit.cli.server import Answer, Asked, Broken, Log, answering

RESTARTED: tuple[Answer, ...] = ((200, Broken()), (503, {"detail": "the database is away"}), (200, Broken()))
"""What is answered while a server ends and starts."""


def job(state: str, seq: int, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = a_job(state=state, seq=seq, **fields).model_dump(mode="json")
    return answer


def client(asked: Asked, *, answered: bool = True) -> Tidegate:
    return Tidegate(Endpoint(asked.url, "none", None, "test"), answered=answered)


def server(streams: Iterator[Answer], looks: Callable[[], Answer]) -> Callable[[str, str, Any], Answer]:
    """Each stream that is asked for is the next one; whoever looks at the job sees what `looks` gives."""
    return lambda method, path, body: next(streams) if "/events" in path or "/logs" in path else looks()


def test_a_jobs_events_come_once_each_through_clean_ends_and_broken_ones() -> None:
    streams = iter(
        [
            (200, [job("QUEUED", 1), job("RUNNING", 2)]),
            *RESTARTED,
            (200, Broken([job("RUNNING", 3)])),
            (200, [job("SUCCEEDED", 4)]),
        ]
    )
    with answering(server(streams, lambda: (200, job("RUNNING", 3)))) as asked, client(asked) as tidegate:
        seen = [json.loads(event.data)["job"]["seq"] for event in tidegate.events(job=JOB)]
        after = [given for (_, path, _), given in zip(asked.requests, asked.after, strict=True) if "/events" in path]
    assert seen == [1, 2, 3, 4]
    assert after == [None, "1-2", "1-2", "1-2", "1-2", "1-3"]


def test_events_that_a_stream_was_closed_before_come_also_where_the_job_has_ended_meanwhile() -> None:
    streams = iter([(200, [job("RUNNING", 2)]), (200, []), (200, [job("SUCCEEDED", 3)])])
    with answering(server(streams, lambda: (200, job("SUCCEEDED", 3)))) as asked, client(asked) as tidegate:
        assert [event.event for event in tidegate.events(job=JOB)] == ["running", "succeeded"]


def test_nothing_is_waited_for_after_the_last_event_of_a_job_that_has_ended() -> None:
    streams = iter([(200, list[Any]())])
    with answering(server(streams, lambda: (200, job("FAILED", 7)))) as asked, client(asked) as tidegate:
        assert list(tidegate.events(job=JOB, after="1-7")) == []


def test_a_tenants_stream_goes_on_after_the_position_that_it_began_with() -> None:
    streams = iter([(200, ["id: 41\n\n"]), *RESTARTED, (200, [job("SUCCEEDED", 2)]), (404, {"detail": "enough"})])
    with answering(server(streams, lambda: (500, None))) as asked, client(asked) as tidegate:
        events = tidegate.events()
        assert next(events).event == "succeeded"
        with pytest.raises(Refused, match="enough"):
            next(events)
        assert asked.after == [None, "41", "41", "41", "41", "1-2"]


def test_a_wait_is_over_once_the_job_has_ended_and_not_when_a_stream_is() -> None:
    looks = iter([job("RUNNING", 2), job("RUNNING", 2), job("SUCCEEDED", 3)])
    streams = iter([(200, []), *RESTARTED, (200, [job("SUCCEEDED", 3)])])
    with answering(server(streams, lambda: (200, next(looks)))) as asked, client(asked) as tidegate:
        assert tidegate.wait(JOB).state == "SUCCEEDED"


def test_a_log_is_taken_up_where_it_broke_and_read_to_its_end() -> None:
    looks = iter([job("RUNNING", 2), job("RUNNING", 2), job("SUCCEEDED", 3)])
    streams = iter(
        [
            (200, Broken(Log(b"one\ntw", 6))),
            *RESTARTED[:1],
            (200, Log(b"o\n", 8)),
            (200, Log(b"three\n", 14)),
        ]
    )
    with answering(server(streams, lambda: (200, next(looks)))) as asked, client(asked) as tidegate:
        assert b"".join(tidegate.logs(JOB, follow=True, attempt=1)) == b"one\ntwo\nthree\n"
        logs = [path for path in asked.of("GET") if "/logs" in path]
    assert [path.rpartition("offset=")[2] for path in logs] == ["0", "6", "6", "8"]


def test_a_log_without_an_attempt_goes_through_all_of_them() -> None:
    two = [an_attempt(1), an_attempt(2, origin="resume")]
    looks = iter([job("RUNNING", 2), job("PAUSED", 3), job("PAUSED", 3), job("RUNNING", 4, attempts=two)])
    ended = job("SUCCEEDED", 5, attempts=two)

    def answers(method: str, path: str, body: Any) -> Answer:
        if "/logs" in path:
            first = "attempt=1" in path
            return 200, Log(b"" if "offset=2" in path else b"1\n" if first else b"2\n", 2)
        if path.endswith("/events"):
            return 200, [job("RUNNING", 4, attempts=two)]
        return 200, next(looks, ended)

    with answering(answers) as asked, client(asked) as tidegate:
        assert b"".join(tidegate.logs(JOB, follow=True)) == b"1\n2\n"


def test_a_server_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "OUTAGE_SECONDS", 0.3)
    with answering(lambda *_: (200, Broken())) as asked, client(asked) as tidegate:
        for ask in (
            lambda: next(tidegate.events(job=JOB)),
            lambda: next(tidegate.logs(JOB, follow=True, attempt=1)),
            lambda: tidegate.wait(JOB),
        ):
            with pytest.raises(ServerGone, match=r"did not come back within 0\.3 s"):
                ask()


def test_a_stream_that_is_closed_at_once_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "OUTAGE_SECONDS", 0.3)
    with (
        answering(lambda _, path, __: (200, [] if "/events" in path else job("RUNNING", 2))) as asked,
        client(asked) as tidegate,
        pytest.raises(ServerGone, match="ended the stream"),
    ):
        next(tidegate.events(job=JOB))


def test_a_server_that_never_answered_is_not_waited_for() -> None:
    with answering(lambda *_: (200, Broken())) as asked, client(asked, answered=False) as tidegate:
        with pytest.raises(NoServer, match="cannot reach") as refused:
            tidegate.wait(JOB)
        assert not isinstance(refused.value, ServerGone)
        assert len(asked.requests) == 1


def test_what_may_not_be_asked_twice_is_asked_once() -> None:
    with (
        answering(lambda *_: (503, {"detail": "away"})) as asked,
        client(asked) as tidegate,
    ):
        with pytest.raises(Unavailable, match="away"):
            tidegate.command(JOB, "stop")
        assert len(asked.requests) == 1


def test_a_server_is_asked_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    gone = outage.Outage()
    for _ in range(10):
        gone.ride_out(NoServer("away"))
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert all(bound / 2 <= seconds <= bound for seconds, bound in zip(slept, bounds, strict=True))
    gone.over()
    gone.ride_out(NoServer("away"))
    assert slept[-1] <= 0.1
