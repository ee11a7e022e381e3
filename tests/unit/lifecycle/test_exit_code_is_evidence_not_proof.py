"""Rule 11: an exit code of 0 without a result is a failure."""

import pytest

from shared.lifecycle import facts as f
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import State
from tests.unit.lifecycle.jobs import a_job

OUTCOMES = {
    "the expectation does not hold": ("expectation_failed", "accuracy.txt is empty", EndReason.EXPECTATION_FAILED),
    "declared outputs are not there": ("missing", None, EndReason.OUTPUTS_MISSING),
    "the outputs could not be copied": ("failed", "the store is down", EndReason.COPY_BACK_FAILED),
}


@pytest.mark.parametrize(
    ("outcome", "message", "reason"), [pytest.param(*case, id=name) for name, case in OUTCOMES.items()]
)
def test_exit_code_is_evidence_not_proof(outcome: str, message: str | None, reason: EndReason) -> None:
    job = a_job(retries=3, infrastructure=3).started().exited(0).released()
    job.copied_back(outcome, message=message, missing=("model/a.bin",) if outcome == "missing" else ())
    assert (job.state, job.end, job.record.failed_stage) == (State.FAILED, reason, "stopping_cluster")
    assert job.record.attempt == 1, "the command is not run again for it"
    assert job.record.message is not None
    assert job.record.message.endswith(message or "model/a.bin")
    assert (job.record.exit.code, job.record.hint is not None) == (0, True)
    assert [stage.status for stage in job.record.stages] == ["passed"] * 4 + ["failed"]


def test_a_failed_command_is_not_judged_by_its_outputs() -> None:
    job = a_job().started().exited(3).released().copied_back("missing", missing=("model/a.bin",))
    assert (job.end, job.record.failed_stage) == (EndReason.EXIT_NONZERO, "running_job")


def test_what_a_failed_command_left_is_kept() -> None:
    job = a_job().started().exited(3).released().copied_back("missing", missing=("b",), files=1, manifest="m")
    assert job.record.current.outputs is not None
    assert job.record.current.outputs.files == 1


def test_an_expectation_needs_no_declared_output() -> None:
    job = a_job(outputs=False).admitted().tell(f.Staged, directory="e1", nothing_to_copy=False).exited(0).released()
    assert duties(job.record) == {Duty.COPY_BACK}
    assert job.copied_back("expectation_failed", message="no line says so").end is EndReason.EXPECTATION_FAILED


def test_more_missing_files_than_fit_are_named_in_part() -> None:
    names = tuple(f"part-{n:05}.bin" for n in range(5000))
    job = a_job().started().exited(0).released().copied_back("missing", missing=names)
    assert job.record.message is not None
    assert "part-00004.bin" in job.record.message
    assert len(job.record.model_dump_json()) < 8_000
