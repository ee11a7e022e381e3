"""Whatever happens to a job, its record stays within 64 KiB and its events within 4 KB, and no GPU time is lost."""

from collections.abc import Callable

import pytest

from shared.contracts.events import decode_event, encode_event
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.duties import duties, holdings
from shared.lifecycle.folding import KEPT_ATTEMPTS, KEPT_EVIDENCE, KEPT_SEGMENTS
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from shared.lifecycle.usage import gpu_milliseconds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment

RECORD_BYTES = 64 * 1024
EVENT_BYTES = 4096
LONG = "a sentence of somebody who likes to talk, " * 40


def _record_bytes(record: JobRecord) -> int:
    return len(record.model_dump_json(exclude_none=True).encode())


def _event_bytes(job: Job) -> int:
    return len(encode_event(job.record, job.events[-1], at(0)).body)


def _requeued(times: int, *, talkative: bool = False) -> Job:
    """A job of two GPUs that ran for 2 s and waited for 1 s again and again."""
    job = a_job(infrastructure=times).admitted().staged().accepted(segment(0, created=10))
    for n in range(times):
        key = segment(n, created=10 + 3 * n)
        job.tell(f.SeenPending, segment=key, raw_state="PENDING", raw_reason=LONG if talkative else "Priority")
        job.running(key, started=11 + 3 * n)
        said = LONG if talkative else "preempted"
        job.requeued(key, started_at=at(11 + 3 * n), ended=13 + 3 * n, raw_reason=said)
    return job


@pytest.mark.parametrize("talkative", [False, True], ids=["plain words", "long words"])
def test_an_attempt_with_500_requeues(*, talkative: bool) -> None:
    job = _requeued(500, talkative=talkative)
    assert _event_bytes(job) < EVENT_BYTES
    assert _record_bytes(job.record) < RECORD_BYTES // 2
    assert len(job.record.current.segments) == KEPT_SEGMENTS
    assert gpu_milliseconds(job.record, at(0)) == 500 * 2 * 2_000
    folded = job.record.current.folded
    assert folded is not None
    assert (folded.segments, folded.not_billable_gpu_milliseconds) == (496, 496 * 4_000)
    assert job.record.retries.infrastructure_used == 500
    assert job.record.started_at == at(11)
    assert (job.record.backend.name, job.record.backend.ref) == ("local", "r1"), "who accepted it is still known"


def test_facts_of_a_folded_segment_change_nothing() -> None:
    job = _requeued(20)
    before = job.record
    job.requeued(segment(0, created=10), ended=999)
    assert job.record is before
    assert job.why == "that segment is closed and counted"


def test_a_segment_whose_end_is_still_owed_is_not_folded_soon() -> None:
    job = a_job(infrastructure=50).admitted().staged().accepted()
    for n in range(KEPT_SEGMENTS + 2):
        job.running(segment(n, created=10 + 3 * n), started=11 + 3 * n)
    assert job.record.current.folded is None
    for n in range(KEPT_SEGMENTS + 1):
        job.requeued(segment(n, created=10 + 3 * n), started_at=at(11 + 3 * n), ended=13 + 3 * n)
    assert gpu_milliseconds(job.record, at(0)) == (KEPT_SEGMENTS + 1) * 4_000


def test_a_loss_stays_disproved_when_the_segment_that_disproved_it_is_folded() -> None:
    job = a_job(infrastructure=5).admitted().staged().accepted()
    again = job.fact(f.SeenPending, segment=segment(1, created=7), raw_state="PENDING")
    job.tell(f.Lost).running().take(again)
    shown = decode_event(encode_event(job.record, "pending", at(0)).body).job
    assert shown.current.folded is not None
    assert picture(shown.current).lost is None
    assert duties(shown) == duties(job.record)


def test_it_ends_like_any_other() -> None:
    job = _requeued(30)
    last = segment(30, created=200)
    job.running(last, started=201).exited(0, last, started_at=at(201), ended_at=at(203)).sealed()
    assert job.state is State.SUCCEEDED
    assert gpu_milliseconds(job.record, at(0)) == 31 * 4_000


def test_a_job_with_200_attempts() -> None:
    job = a_job(by_hand=200)
    for n in range(200):
        job.admitted(n + 1).staged().accepted().running().exited(3, message=LONG).sealed().ask(i.Retry)
    assert job.record.attempt == 201
    assert len(job.record.attempts) == KEPT_ATTEMPTS
    assert sum(bool(attempt.evidence) for attempt in job.record.attempts) == KEPT_EVIDENCE - 1
    assert job.record.earlier is not None
    assert job.record.earlier.attempts == 201 - KEPT_ATTEMPTS
    assert gpu_milliseconds(job.record, at(0)) == 200 * 2 * 5_000
    assert _record_bytes(job.record) < RECORD_BYTES // 2
    assert _event_bytes(job) < EVENT_BYTES
    assert decode_event(encode_event(job.record, "queued", at(0)).body).earlier_attempts == 200


@pytest.mark.parametrize("attempt", [1, 195], ids=["long gone", "without its evidence"])
def test_facts_of_an_attempt_that_is_only_counted_change_nothing(attempt: int) -> None:
    job = a_job(by_hand=200)
    for n in range(200):
        job.admitted(n + 1).staged().accepted().running().exited(3).sealed().ask(i.Retry)
    before = job.record
    job.exited(3, attempt=attempt, ended_at=at(1000))
    assert job.record is before
    assert job.last.what == "ignored"


def test_the_worst_of_everything_at_once() -> None:
    """Attempts of many requeues each, findings and gates of the longest kind."""
    job = a_job(infrastructure=10_000)
    for n in range(12):
        job.admitted(n + 1).tell(f.InputValid, warnings=(LONG,) * 50).staged().accepted()
        for k in range(10):
            key = segment(k, created=10 + 3 * k)
            job.tell(f.SeenPending, segment=key, raw_state=LONG, raw_reason=LONG)
            job.running(key, started=11 + 3 * k, raw_state=LONG).requeued(key, ended=13 + 3 * k, raw_reason=LONG)
        job.exited(3, segment(10, created=99), message=LONG, raw_state=LONG)
        job.released().copied_back("missing", missing=(LONG,) * 50, message=LONG).ask(i.Retry)
    gates = tuple(f.Gate(name=f"g{n}", reason=LONG, scope=LONG, lifted_by=LONG) for n in range(50))
    job.tell(f.Held, gates=gates).ask(i.Hold, actor=LONG, reason=LONG)
    assert _record_bytes(job.record) < RECORD_BYTES
    assert _event_bytes(job) < EVENT_BYTES
    findings = tuple(f.Finding(code="missing", place=LONG, message=LONG, near=LONG) for _ in range(500))
    job.ask(i.Release).admitted(99).tell(f.InputInvalid, findings=findings).ask(i.Stop, actor=LONG)
    assert _record_bytes(job.record) < RECORD_BYTES
    assert _event_bytes(job) < EVENT_BYTES
    assert decode_event(encode_event(job.record, "desired", at(0)).body).shortened


NAME = "a-name-of-six-and-thirty-characters-"


def test_the_event_of_a_normal_job_with_full_evidence_needs_no_shortening() -> None:
    made = a_job(gpus=8, retries=2, infrastructure=5).record
    job = Job(made.model_copy(update={"tenant": NAME, "name": NAME, "user": NAME, "project": NAME}))
    sizes = {}
    gate = f.Gate(
        name="quota.gpus",
        reason=f"needs 8 GPUs; {NAME} has 4 of 16 free, and 3 jobs of 24 GPUs in all are before it",
        have=4,
        need=8,
        scope=f"tenant {NAME}",
        lifted_by="a tenant admin (tidegate quota set)",
        opens_at=at(7200),
    )
    job.tell(f.Held, gates=(gate, gate.model_copy(update={"name": "capacity"})))
    key = f.SegmentKey(submission=f"{made.id}-a1-s1", created_at=at(3.123456))
    steps: list[Callable[[], Job]] = [
        lambda: job.admitted(),
        lambda: job.staged(),
        lambda: job.tell(f.Accepted, segment=key, backend="local", cluster=NAME, ref=f"{made.id}-a1-s1"),
        lambda: job.tell(f.SeenPending, segment=key, raw_state="PENDING", raw_reason="Resources"),
        lambda: job.running(key),
        lambda: job.ask(i.Pause, actor=NAME),
        lambda: job.exited(0, key, self_reported=True),
        lambda: job.released(),
        lambda: job.copied_back(files=1200, size_bytes=10**12, manifest=f"{NAME}/outputs/{made.id}/a1-e1.manifest"),
    ]
    for step in steps:
        event = encode_event(job.record, job.events[-1] if job.events else "queued", at(0))
        sizes[job.events[-1]] = len(event.body)
        assert len(event.body) < EVENT_BYTES, sizes
        step()
    event = encode_event(job.record, job.events[-1], at(0))
    assert job.end is EndReason.SUCCEEDED
    assert len(event.body) < EVENT_BYTES
    shown = decode_event(event.body)
    assert not shown.shortened
    assert (duties(shown.job), holdings(shown.job)) == (duties(job.record), holdings(job.record))
