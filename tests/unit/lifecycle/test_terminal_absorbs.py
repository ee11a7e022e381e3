"""Rule 5: terminal absorbs, but for retry on FAILED or STOPPED, and for a recopy."""

import pytest
from hypothesis import given, settings

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.duties import Duty, duties, holdings
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import TERMINAL, State
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, a_job_that
from tests.unit.lifecycle.world import World


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_terminal_absorbs(world: World) -> None:
    for entry in world.log:
        before, after = entry.before, entry.after
        if before.state not in TERMINAL:
            continue
        if isinstance(entry.item, i.Retry | i.Recopy | i.Delete | f.Recopied):
            continue
        shown = {"attempts", "gpus_freed", "seq"}
        assert after.model_dump(exclude=shown) == before.model_dump(exclude=shown)


def test_a_late_exit_never_changes_the_end() -> None:
    job = a_job_that(State.FAILED).exited(0)
    assert (job.state, job.end, job.record.exit.code) == (State.FAILED, EndReason.EXIT_NONZERO, 3)


def _copy_back_failed() -> Job:
    return a_job(gpus=4).started().exited(0).released().copied_back("failed", message="the store is down")


class TestRecopy:
    """`outputs retry` on copy_back_failed works outside the attempt."""

    def test_it_holds_nothing_and_stays_failed(self) -> None:
        job = _copy_back_failed().ask(i.Recopy)
        assert (job.state, job.events[-1]) == (State.FAILED, "evidence")
        assert duties(job.record) == {Duty.RECOPY}
        assert holdings(job.record) == (False, False)

    def test_verified_outputs_make_it_succeeded_once(self) -> None:
        job = _copy_back_failed().ask(i.Recopy)
        job.tell(f.Recopied, recopy=1, outcome="verified", files=2, size_bytes=10, manifest="m")
        assert (job.state, job.events[-1]) == (State.SUCCEEDED, "succeeded")
        assert (job.record.corrects, job.record.failed_stage, job.record.hint) == (State.FAILED, None, None)
        assert [stage.status for stage in job.record.stages] == ["passed"] * 5
        assert job.record.current.outputs is not None
        assert job.record.current.outputs.files == 2
        assert job.tell(f.Recopied, recopy=1, outcome="verified").last.what == "ignored"

    def test_one_that_fails_leaves_it_failed_and_may_be_asked_again(self) -> None:
        job = _copy_back_failed().ask(i.Recopy).tell(f.Recopied, recopy=1, outcome="failed", message="still down")
        assert job.state is State.FAILED
        assert job.record.message == "exited 0, but its outputs could not be copied back: still down"
        mark = job.ask(i.Recopy).record.recopy
        assert mark is not None
        assert mark.number == 2
        job.tell(f.Recopied, recopy=1, outcome="verified")
        assert job.why == "that recopy is not open"

    @pytest.mark.parametrize("command", [i.Retry, i.Delete], ids=["retry", "delete"])
    def test_meanwhile_retry_and_delete_are_refused(self, command: type[i.CommandBase]) -> None:
        job = _copy_back_failed().ask(i.Recopy).ask(command)
        assert job.why == "its outputs are being copied again: wait for that"

    def test_it_is_for_outputs_whose_copy_failed_only(self) -> None:
        assert "only outputs whose copying back failed" in a_job_that(State.FAILED).ask(i.Recopy).why
        assert _copy_back_failed().ask(i.Recopy).ask(i.Recopy).last.what == "ignored"


@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED])
def test_retry_leaves_failed_and_stopped(state: State) -> None:
    assert a_job_that(state).ask(i.Retry).state is State.QUEUED


def test_nothing_leaves_succeeded() -> None:
    job = a_job_that(State.SUCCEEDED).ask(i.Retry)
    assert job.why == "it succeeded already: submit it again to run it again"


def test_a_job_whose_gpus_are_not_free_yet_is_not_deleted() -> None:
    """Its reservation would end with the tombstone, and the GPUs would be given away twice."""
    job = a_job(outputs=False).started().exited(0).tell(f.LauncherSealed, ran=True)
    assert job.state is State.SUCCEEDED
    assert job.ask(i.Delete).why == "the cluster has not freed its GPUs yet: wait for that"
    assert job.tell(f.GpusFreed).ask(i.Delete).events[-1] == "deleted"
