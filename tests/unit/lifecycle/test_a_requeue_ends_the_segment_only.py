"""Rule 3, requeues: an end that the backend will requeue ends the segment only."""

from shared.lifecycle import facts as f
from shared.lifecycle.duties import Duty, duties, holdings
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import State
from tests.unit.lifecycle.jobs import a_job, segment


def test_it_is_pending_again_and_keeps_its_reservation() -> None:
    job = a_job(infrastructure=5).started().requeued()
    assert (job.state, job.events[-1]) == (State.PENDING, "pending")
    assert holdings(job.record) == (True, True)
    assert [stage.status for stage in job.record.stages[1:4]] == ["passed", "active", "waiting"]
    assert job.record.stages[2].waiting_on == "the backend, which requeued it: preempted"
    assert job.record.backend.raw_state is None


def test_it_counts_against_the_infrastructure_not_the_user() -> None:
    job = a_job(retries=1, infrastructure=5).started().requeued()
    assert (job.record.retries.infrastructure_used, job.record.retries.used) == (1, 0)
    job.requeued()
    assert job.record.retries.infrastructure_used == 1, "the same requeue told again"
    job.running(segment(1, created=7), started=8).requeued(segment(1, created=7), ended=9)
    assert job.record.retries.infrastructure_used == 2


def test_an_unseen_requeue_counts_as_well() -> None:
    job = a_job(infrastructure=5).started().running(segment(3, created=9), started=10)
    assert job.record.retries.infrastructure_used == 3
    assert job.record.current.segments[0].estimated


def test_over_budget_the_launcher_ends_it() -> None:
    job = a_job(infrastructure=1, outputs=False).started().requeued()
    assert Duty.SEAL_LAUNCH not in duties(job.record)
    job.running(segment(1, created=7)).requeued(segment(1, created=7), ended=9)
    assert Duty.SEAL_LAUNCH in duties(job.record)
    job.tell(f.SeenPending, segment=segment(2, created=10), raw_state="PENDING")
    job.exited(None, segment(2, created=10), stop_recorded=True, started_at=None).released()
    assert (job.state, job.end) == (State.FAILED, EndReason.PREEMPTED)
    assert job.record.message is not None
    assert "2 interruptions by the infrastructure, of 1 allowed" in job.record.message


def test_a_second_submission_is_no_requeue() -> None:
    job = a_job().admitted().staged().accepted(segment(submission="s1", created=3))
    job.running(segment(submission="s2", created=4))
    assert job.record.retries.infrastructure_used == 0
