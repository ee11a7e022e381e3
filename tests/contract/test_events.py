"""Job events: small, complete for whoever decides from them, and with every segment that changed."""

import json
from collections.abc import Iterator

from hypothesis import given, settings

from shared.contracts.events import MAX_BODY_BYTES, JobEvent, decode_event, encode_event
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.duties import duties, holdings
from shared.lifecycle.picture import picture
from shared.lifecycle.record import Segment
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import Job, a_job, at, segment
from tests.unit.lifecycle.world import World


def _events(world: World) -> Iterator[tuple[World, JobEvent]]:
    for entry in world.log:
        done = advance(entry.before, [entry.item], entry.now)
        if done.event is not None:
            wire = encode_event(done.record, done.event, entry.now, before=entry.before)
            assert len(wire.body) <= MAX_BODY_BYTES
            yield world, decode_event(wire.body)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_who_decides_from_an_event_decides_as_from_the_record(world: World) -> None:
    for entry in world.log:
        done = advance(entry.before, [entry.item], entry.now)
        if done.event is None:
            continue
        wire = encode_event(done.record, done.event, entry.now, before=entry.before)
        assert len(wire.body) <= MAX_BODY_BYTES
        shown = decode_event(wire.body).job
        assert duties(shown) == duties(done.record)
        assert holdings(shown) == holdings(done.record)
        seen, told = picture(done.record.current), picture(shown.current)
        assert (told.ran, told.sealed, told.latest) == (seen.ran, seen.sealed, seen.latest)
        left_out = {"attempts", "earlier"}
        assert shown.model_dump(exclude=left_out) == done.record.model_dump(exclude=left_out)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_who_reads_every_event_knows_every_segment(world: World) -> None:
    """Metering's view: segments by key, whatever attempt they are of."""
    known: dict[tuple[int, str, int], Segment] = {}
    for _, event in _events(world):
        for attempt, one in event.segments():
            known[attempt, one.key.submission, one.key.restart] = one
    kept = {
        (attempt.number, one.key.submission, one.key.restart): one
        for attempt in world.record.attempts
        for one in attempt.segments
    }
    assert {key: known.get(key) for key in kept} == kept


def test_an_event_has_the_attributes_of_a_cloud_event() -> None:
    job = a_job().admitted()
    wire = encode_event(job.record, "submitted", at(12))
    assert wire.subject == "jobs.v1.acme.submitted"
    assert wire.msg_id == f"{job.record.id}/1/2"
    assert wire.headers == {
        "ce-specversion": "1.0",
        "ce-id": wire.msg_id,
        "ce-source": "/tidegate/api",
        "ce-type": "dev.tidegate.job.v1.submitted",
        "ce-subject": job.record.id,
        "ce-time": "2026-11-30T09:00:12+00:00",
        "content-type": "application/json",
    }


def test_an_event_reads_back_as_the_record_of_a_job_with_one_segment() -> None:
    job = a_job().started().exited(0).sealed()
    shown = decode_event(encode_event(job.record, "succeeded", at(12)).body).job
    sources = [fact.model_copy(update={"source": "event"}) for fact in job.record.current.evidence]
    attempt = job.record.current.model_copy(update={"evidence": tuple(sources)})
    assert shown == job.record.model_copy(update={"attempts": (attempt,)})


def test_an_automatic_retry_tells_how_the_last_attempt_ended() -> None:
    """All in one batch: nobody saw the attempt run."""
    job = a_job(retries=1, outputs=False).admitted().staged()
    before = job.record
    job.take(
        job.fact(f.Exited, segment=segment(), code=1, started_at=at(4), ended_at=at(6), raw_state="exited"),
        job.fact(f.LauncherSealed, ran=True),
    )
    assert job.events[-1] == "queued"
    event = decode_event(encode_event(job.record, "queued", at(12), before=before).body)
    ((attempt, one),) = event.segments()
    assert (attempt, one.gpu_milliseconds) == (1, 4_000)
    assert event.earlier_attempts == 1


def test_a_correction_of_an_older_attempt_is_told() -> None:
    job = a_job().started().exited(3).sealed().ask(i.Retry).admitted(2)
    before = job.record
    job.exited(3, attempt=1, ended_at=at(6))
    event = decode_event(encode_event(job.record, "stage", at(12), before=before).body)
    ((attempt, one),) = event.segments()
    assert (attempt, one.gpu_milliseconds) == (1, 4_000)


def test_without_what_was_before_the_current_attempts_segments_are_told() -> None:
    job = _requeued_twice()
    event = decode_event(encode_event(job.record, "pending", at(12)).body)
    assert [one.key.restart for _, one in event.segments()] == [0, 1]
    assert event.earlier_segments == 1


def _requeued_twice() -> Job:
    job = a_job(infrastructure=5).started().requeued()
    again = segment(1, created=7)
    return job.running(again, started=8).requeued(again, ended=9)


def test_values_of_the_environment_are_in_no_event() -> None:
    body = json.loads(encode_event(a_job().record, "queued", at(1)).body)
    assert "spec" not in body["job"]
    assert "env" not in json.dumps(body)
