"""Jobs, attempts and facts as the API shows them, for tests of how they look."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.client.views import JobView
from shared.lifecycle.facts import FACT, AnyFact
from shared.lifecycle.record import Attempt, Segment, Stage
from shared.lifecycle.states import StageName, StageStatus

JOB = "j" + "0" * 26
OTHER = "j" + "1" * 26
PIPELINE = "p" + "0" * 26
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def a_fact(kind: str, seconds: float = 0, **fields: Any) -> AnyFact:
    """A fact about the job's attempt 1, seen so many seconds after noon."""
    segment = {"submission": f"tidegate.{JOB}.a1.s1", "restart": 0, "created_at": NOON}
    sources = {"accepted": "launcher/launcher", "input_valid": "stager/stager"}
    known = {"source": sources.get(kind, "watcher/local"), "version": {"n": int(seconds) + 1}, "segment": segment}
    return FACT.validate_python(
        known | {"kind": kind, "job": JOB, "tenant": "acme", "attempt": 1, "at": at(seconds)} | fields
    )


def stages(running: StageStatus = StageStatus.PASSED) -> tuple[Stage, ...]:
    """The five stages of an attempt whose command ran for a minute and a half."""
    times = [(0, 1), (1, 2), (2, 3), (3, 93), (93, 94)]
    return tuple(
        Stage(
            name=name,
            status=running if name is StageName.RUNNING_JOB else StageStatus.PASSED,
            started_at=at(start),
            ended_at=at(end),
        )
        for name, (start, end) in zip(StageName, times, strict=True)
    )


def an_attempt(number: int = 1, **fields: Any) -> Attempt:
    """One that ran on two GPUs and ended."""
    key = {"submission": f"s{number}", "restart": 0, "created_at": NOON}
    segment = Segment.model_validate(
        {"key": key, "started_at": at(3), "ended_at": at(93), "ended": "exited", "gpus": 2, "gpu_milliseconds": 180_250}
    )
    known: dict[str, Any] = {
        "number": number,
        "queued_at": NOON,
        "segments": (segment,),
        "sealed": True,
        "stages": stages(),
        "end_reason": "succeeded",
        "finished_at": at(94),
    }
    return Attempt.model_validate(known | fields)


def a_job(attempts: Sequence[Attempt] = (), **fields: Any) -> JobView:
    """A job whose newest attempt is the last of `attempts`."""
    given = tuple(attempts) or (an_attempt(),)
    known: dict[str, Any] = {
        "id": JOB,
        "tenant": "acme",
        "project": "vision",
        "user": "rin",
        "name": "train",
        "state": "SUCCEEDED",
        "desired_state": "run",
        "epoch": 1,
        "seq": 9,
        "stages": stages(),
        "attempt": given[-1].number,
        "attempts": given,
        "spec": {"command": ["python", "train.py"], "gpus": 2},
        "backend": {},
        "exit": {"code": 0},
        "submitted_at": NOON,
        "started_at": at(3),
    }
    return JobView.model_validate(known | fields)
