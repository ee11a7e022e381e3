"""`explain` on one screen: why, what comes next and when, the cost, and what was seen by whom."""

from typing import Any

from rich.text import Text

from services.cli.explain import lines_of
from tests.unit.cli.given import JOB, at


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


def test_says_why_what_comes_next_and_what_it_cost() -> None:
    shown = lines()
    assert shown[0] == f"{JOB}  QUEUED"
    assert "  why    cooldown: attempt 1 failed" in shown
    assert "  cost   12.500 GPU seconds" in shown
    following = next(line for line in shown if line.startswith("  next   "))
    assert following.startswith("  next   it is tried again, by the gatekeeper, at ")
    assert following.endswith(" (in 30.0 s)")


def test_says_that_nothing_follows_and_what_is_overdue() -> None:
    assert "  next   nothing" in lines(next=None)
    late = lines(next={"what": "it opens", "who": None, "at": at(-90).isoformat()})
    assert any(line.endswith(" (1 min ago)") and ", due at " in line for line in late)


def test_says_what_is_not_billed_and_what_is_estimated() -> None:
    cost = {"gpu_seconds": "9.000", "not_billable_gpu_seconds": "3.000", "estimated": True}
    assert "  cost   9.000 GPU seconds (3.000 of them not billed; estimated: not every end was seen)" in lines(
        cost=cost
    )


def test_says_what_was_seen_where_when_and_by_whom() -> None:
    seen = {"what": "running [red]", "where": "local", "at": at(1).isoformat(), "seen_by": "watcher/local"}
    line = lines(evidence=[seen])[-1]
    assert line.endswith("  watcher/local     running [red]  (local)")
