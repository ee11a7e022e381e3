"""`explain` on one screen: why, what comes next and when, the cost, and what was seen by whom."""

from typing import Any

import pytest
import typer
from rich.text import Text

from services.cli.explain import lines_of, step_of
from shared.client.views import PipelineView
from tests.unit.cli.given import JOB, OTHER, PIPELINE, at


def told(**fields: Any) -> dict[str, Any]:
    """As the API explains a job."""
    return {
        "job": JOB,
        "state": "QUEUED",
        "why": "cooldown: attempt 1 failed",
        "evidence": [],
        "next": {"what": "it is tried again", "who": "the gatekeeper", "at": at(30).isoformat()},
        "cost": {"gpu_seconds": "12.500", "not_billable_gpu_seconds": "0.000", "estimated": False},
    } | fields


def lines(**fields: Any) -> list[str]:
    return [Text.from_markup(line).plain for line in lines_of(told(**fields), at(0))]


def test_says_why_what_comes_next_by_whom_and_what_it_cost() -> None:
    shown = lines()
    assert shown[0] == f"{JOB}  QUEUED"
    assert shown[2] == "  why    cooldown: attempt 1 failed"
    assert shown[3].startswith("  next   it is tried again, at ")
    assert shown[3].endswith(" (in 30.0 s)")
    assert shown[4:] == ["  by     the gatekeeper", "  cost   12.500 GPU seconds"]


def test_says_that_nothing_follows_and_what_is_overdue() -> None:
    assert "  next   nothing" in lines(next=None)
    late = lines(next={"what": "it opens", "who": None, "at": at(-90).isoformat()})
    assert any(line.endswith(" (1 min ago)") and ", due at " in line for line in late)
    assert not any(line.startswith("  by") for line in late)


def test_says_what_is_not_billed_and_what_is_estimated() -> None:
    cost = {"gpu_seconds": "9.000", "not_billable_gpu_seconds": "3.000", "estimated": True}
    assert "  cost   9.000 GPU seconds (3.000 of them not billed; estimated: not every end was seen)" in lines(
        cost=cost
    )


def seen(attempt: int, what: str, where: str | None = None) -> dict[str, Any]:
    return {"attempt": attempt, "what": what, "where": where, "at": at(1).isoformat(), "seen_by": "watcher/local"}


def test_says_what_was_seen_where_when_and_by_whom() -> None:
    shown = lines(
        evidence=[seen(1, f"staged in work/{JOB}/a1"), seen(2, "running [red]", "local"), seen(2, "x", "gpu7")]
    )
    assert shown[-4].endswith("  watcher/local staged in work/…/a1")
    assert shown[-3] == "  attempt 2"
    assert shown[-2].endswith("  watcher/local running [red]")
    assert shown[-1].endswith("  watcher/local x (on gpu7)")


def test_stays_one_screen_and_says_where_the_rest_is() -> None:
    shown = lines(evidence=[seen(number, "x") for number in range(1, 100)])
    assert len(shown) < 45
    assert f"  seen; 83 before it are in: tidegate show {JOB}" in shown


def a_pipeline(*steps: dict[str, Any]) -> PipelineView:
    known = {"name": "x", "desired_state": "run"}
    return PipelineView.model_validate(
        {
            "id": PIPELINE,
            "tenant": "acme",
            "project": "vision",
            "user": "rin",
            "name": "train",
            "word": "running",
            "steps": [known | {"index": index} | step for index, step in enumerate(steps)],
            "submitted_at": at(0).isoformat(),
        }
    )


@pytest.mark.parametrize("second", ["QUEUED", "FAILED", "SUCCEEDED"])
def test_a_pipeline_is_explained_by_its_first_step_that_has_not_succeeded(second: str) -> None:
    pipeline = a_pipeline({"job": JOB, "state": "SUCCEEDED"}, {"job": OTHER, "state": second})
    assert step_of(pipeline).job == OTHER
    assert step_of(a_pipeline({"job": JOB, "state": "RUNNING"}, {"job": OTHER, "state": second})).job == JOB


def test_a_pipeline_whose_steps_are_deleted_is_not_explained() -> None:
    gone = a_pipeline({"job": JOB, "state": "FAILED", "deleted_at": at(9).isoformat()})
    with pytest.raises(typer.BadParameter, match=f"every step of {PIPELINE} was deleted"):
        step_of(gone)
