"""Following says each thing once: a stage when it is over, a gate when its sentence changes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from services.cli.follow import StageLines
from shared.client.views import GateView, JobView
from shared.lifecycle.record import Stage
from shared.lifecycle.states import StageName, StageStatus

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def a_job(stages: Mapping[StageName, StageStatus], *, attempt: int = 1, gate: str | None = None) -> JobView:
    """As much of a job as following looks at."""
    shown = tuple(
        Stage(name=name, status=status, waiting_on=gate, started_at=_AT, ended_at=_AT)
        for name, status in stages.items()
    )
    closed = None if gate is None else GateView(name="hold", reason=gate, lifted_by="a release", scope="job")
    fields: dict[str, Any] = {"attempt": attempt, "gate": closed, "stages": shown, "attempts": ()}
    return JobView.model_construct(**fields)


def new(lines: StageLines, job: JobView, but: Sequence[StageName] = ()) -> list[str]:
    return lines.new(job, job.attempt, but)


def test_a_stage_is_said_once_even_where_its_mark_changes() -> None:
    lines = StageLines()
    assert len(new(lines, a_job({StageName.RUNNING_JOB: StageStatus.PASSED}))) == 1
    assert new(lines, a_job({StageName.RUNNING_JOB: StageStatus.FAILED})) == []


def test_a_stage_is_said_again_in_the_next_attempt() -> None:
    lines = StageLines()
    assert len(new(lines, a_job({StageName.RUNNING_JOB: StageStatus.FAILED}))) == 1
    assert len(new(lines, a_job({StageName.RUNNING_JOB: StageStatus.PASSED}, attempt=2))) == 1


def test_stages_of_the_end_wait_for_the_log() -> None:
    lines, job = (
        StageLines(),
        a_job({StageName.QUEUED: StageStatus.PASSED, StageName.STOPPING_CLUSTER: StageStatus.PASSED}),
    )
    assert ["queued" in line for line in new(lines, job, but=(StageName.STOPPING_CLUSTER,))] == [True]
    assert ["stopping cluster" in line for line in new(lines, job)] == [True]


def test_a_gate_is_said_whenever_its_sentence_changes_and_escaped() -> None:
    lines, queued = StageLines(), {StageName.QUEUED: StageStatus.ACTIVE}
    assert "held: \\x1b[2J" in new(lines, a_job(queued, gate="held: \x1b[2J"))[0].replace("\\[", "[")
    assert new(lines, a_job(queued, gate="held: \x1b[2J")) == []
    assert len(new(lines, a_job(queued, gate="no GPU is free"))) == 1
