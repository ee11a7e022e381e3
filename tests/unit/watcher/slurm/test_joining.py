"""Which of the rows of a name are the submission."""

from dataclasses import replace

from services.watcher.slurm.findings import findings
from services.watcher.slurm.joining import Rows, by_name, sighting, tenant_in
from shared.backends.slurm.records import Claim, Records, Run
from tests.unit.watcher.slurm.rows import JOB, NAME, accounted, at, queued


def claimed_by(id: str) -> Records:
    """The claim is held by a Slurm job."""
    return Records((Claim(Run(NAME, "t1", JOB, 1, "acme", id, 0, "n1"), at(1)),))


def test_strangers_other_deployments_arrays_and_heterogeneous_jobs_are_not_ours() -> None:
    ours, past = queued("RUNNING", start=1), accounted("COMPLETED", start=1, end=2)
    strange = [replace(ours, name=name) for name in ("train", "FAILED-rerun", "", f"other.{JOB}.a1.s1", f"{NAME}.x")]
    strange += [replace(ours, id=id) for id in ("27_4", "27_[1-10%2]", "27+0", "27.batch", "no id")]
    half = [replace(past, name="allocation"), replace(past, id="27_1")]
    assert by_name([*strange, ours], [*half, past], "tidegate") == {NAME: Rows((ours,), (past,))}


def test_what_is_kept_of_a_refused_submission_is_no_job() -> None:
    queue = queued("FAILED", "BadConstraints", exit="1:0", start=3, end=3)
    assert by_name([queue], [accounted("FAILED", exit="1:0", start=3, end=3)], "tidegate") == {}


def test_of_two_jobs_of_a_name_the_claims_holder_is_the_submission() -> None:
    first, second = queued("CANCELLED", submitted=0), replace(queued("RUNNING", submitted=9, start=10), id="31")
    rows = Rows((first, second))
    held = sighting(NAME, rows, "acme", claimed_by("31"))
    assert held is not None
    assert (held.id, held.alive) == ("31", True)
    earlier = sighting(NAME, rows, "acme", Records())
    assert earlier is not None
    assert (earlier.id, earlier.alive) == ("27", False)


def test_another_jobs_end_is_not_the_end_of_who_has_the_claim() -> None:
    loser = accounted("CANCELLED", submitted=0, start=3, end=3)
    assert sighting(NAME, Rows((), (loser,)), "acme", claimed_by("31")) is None


def test_a_row_of_the_queue_without_its_time_says_nothing_and_lets_accounting_say_nothing() -> None:
    rows = Rows((replace(queued("RUNNING", start=1), submitted_at=None),), (accounted("NODE_FAIL", start=1, end=2),))
    assert rows.alive
    assert sighting(NAME, rows, "acme", Records()) is None


def test_who_cancelled_it_is_known_from_accounting_alone() -> None:
    rows = Rows((queued("CANCELLED", start=1, end=5),), (accounted("CANCELLED", start=1, end=5, by=61007),))
    shown = sighting(NAME, rows, "acme", Records())
    assert shown is not None
    assert [finding.fact["message"] for finding in findings(shown)] == ["cancelled by uid 61007"]


def test_the_tenant_is_who_the_launcher_named() -> None:
    row = queued("RUNNING")
    assert tenant_in(Rows((replace(row, comment="tidegate/1 token acme"),))) == "acme"
    assert tenant_in(Rows((row, replace(row, comment="job of acme")))) is None
    assert tenant_in(Rows((replace(row, comment="tidegate/1 token"),))) is None
