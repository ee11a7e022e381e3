"""`show` of a job with one attempt is compact; with ten each is a paragraph with what began and what ended it."""

from collections.abc import Sequence
from typing import Any

import pytest

from services.cli.render import show_job
from shared.client.views import JobView
from shared.lifecycle.record import Attempt
from shared.lifecycle.states import StageStatus
from tests.unit.cli.given import JOB, a_fact, a_job, an_attempt, at, stages


def shown(capsys: pytest.CaptureFixture[str], job: JobView) -> list[str]:
    show_job(job)
    return capsys.readouterr().out.splitlines()


def paused(number: int = 1, **fields: Any) -> Attempt:
    known = {"end_reason": "paused_by_user", "message": "paused: by rin", "stages": stages(StageStatus.SKIPPED)}
    return an_attempt(number, **known | fields)


def retried(ends: Sequence[str]) -> list[Attempt]:
    return [
        an_attempt(number, origin="retry" if number > 1 else "submit", end_reason=end, message=f"{end} said")
        for number, end in enumerate(ends, 1)
    ]


def test_one_attempt_is_compact_and_has_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = (a_fact("seen_running", 3, started_at=at(3), raw_state="running"),)
    lines = shown(capsys, a_job([an_attempt(evidence=evidence)]))
    assert not any("attempt" in line for line in lines)
    assert any(line.endswith("(1 min 30 s), 2 GPUs: 180.250 GPU seconds") for line in lines)
    assert any("watcher/local" in line and "its command runs" in line for line in lines)
    assert not any(line.endswith(" ") for line in lines)


def test_each_attempt_says_what_began_it_its_stages_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job([paused(), an_attempt(2, origin="resume")])
    lines = shown(capsys, job)
    head = next(line for line in lines if line.startswith("  attempt 1 "))
    assert "submitted" in head
    assert "PAUSED" in head
    assert head.endswith(": by rin")
    assert "    ✓ queued 1.00 s  ✓ input 1.00 s  ✓ start 1.00 s  - run 1 min 30 s  ✓ end 1.00 s" in lines
    assert any(line.startswith("  attempt 2  resumed ") and "SUCCEEDED" in line for line in lines)
    assert "  attempt     2, resumed" in lines


def test_who_stopped_it_before_it_was_retried_is_said_with_the_retry(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, a_job([paused(), an_attempt(2, origin="retry", began_after="stopped: by ada")]))
    head = next(line for line in lines if line.startswith("  attempt 2 "))
    assert " (before that stopped: by ada), SUCCEEDED " in head


def test_what_cannot_be_counted_on_is_said_of_a_segment(capsys: pytest.CaptureFixture[str]) -> None:
    attempt = an_attempt()
    segment = attempt.segments[0].model_copy(
        update={"estimated": True, "billable": False, "ended": "lost", "suspended_ms": 5000}
    )
    lines = shown(capsys, a_job([attempt.model_copy(update={"segments": (segment,)})]))
    assert any("estimated, not billed, suspended for 5.00 s, lost" in line for line in lines)


def test_ten_attempts_fit_a_screen_and_the_oldest_are_summed(capsys: pytest.CaptureFixture[str]) -> None:
    ends = ["exit_nonzero"] * 9 + ["succeeded"]
    job = a_job(
        [attempt.model_copy(update={"number": attempt.number + 4}) for attempt in retried(ends)],
        earlier={"attempts": 4, "segments": 4, "gpu_milliseconds": 1500, "estimated": True},
        retries={"count": 13, "by_hand": 13},
    )
    lines = shown(capsys, job)
    assert f"  4 attempts before: 1.500 GPU seconds, estimated; what was seen of them: tidegate events {JOB}" in lines
    assert sum(line.startswith("  attempt ") and "FAILED" in line for line in lines) == 9
    assert len(lines) < 65
    assert any(line.startswith("  retries     13: ") and line.endswith("13 of 20 by hand") for line in lines)


@pytest.mark.parametrize(
    ("exit_", "said"),
    [({"code": 3}, "exited with code 3; "), ({"signal": 9}, "ended by signal 9; "), ({}, "")],
)
def test_an_attempt_without_its_evidence_says_how_it_ended_and_where_the_rest_is(
    capsys: pytest.CaptureFixture[str], exit_: dict[str, int], said: str
) -> None:
    folded = {"segments": 1, "gpu_milliseconds": 1500}
    old = an_attempt(end_reason="exit_nonzero", message="it failed", exit=exit_, segments=(), folded=folded)
    lines = shown(capsys, a_job([old, an_attempt(2, origin="retry")]))
    first = lines.index(next(line for line in lines if line.startswith("  attempt 1 ")))
    assert lines[first].endswith(": it failed")
    assert lines[first + 1].startswith("    ✓ queued ")
    assert lines[first + 2 : first + 4] == [
        "    1 segment: 1.500 GPU seconds",
        f"    {said}what was seen of it: tidegate events {JOB}",
    ]


def test_who_holds_it_and_who_asked_for_a_pause_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job(
        [an_attempt(end_reason=None, finished_at=None)],
        state="RUNNING",
        desired_state="paused",
        wish={"actor": "rin", "at": at(5), "reason": "lunch"},
        hold={"actor": "ops", "reason": "audit", "by_admin": True, "at": at(1)},
        actions={"stop": {"allowed": True}, "retry": {"allowed": False, "why_not": "it runs"}},
    )
    lines = shown(capsys, job)
    assert any(line.startswith("  asked for   a pause by rin at ") and line.endswith(" (lunch)") for line in lines)
    assert any(line.startswith("  held        by an admin, ops at ") and line.endswith(": audit") for line in lines)
    assert "  possible    stop" in lines
