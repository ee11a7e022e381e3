"""Events repeat, come late and overtake each other: what the newest asks is done, and nothing starts twice."""

from datetime import UTC, datetime
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from services.launcher.domain import Graces, Launch, State, decide
from shared.contracts.events import decode_event
from shared.lifecycle import facts as f
from shared.lifecycle.record import JobRecord
from tests.integration.launcher.story import Job

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
_ORDER = [State.INTENT, State.SUBMITTING, State.SUBMITTED, State.REVOKING, State.SEALED]


@cache
def histories() -> tuple[tuple[JobRecord, ...], ...]:
    """Records as the api made them: of a plain job, one stopped while it ran, and one stopped before its launch."""
    told: list[tuple[JobRecord, ...]] = []
    for stopped_before, stopped_after in ((False, False), (False, True), (True, False)):
        job = Job("true")
        job.staged()
        submission = f"tidegate.{job.id}.a1.s1"
        if stopped_before:
            job.stop()
        else:
            segment = f.SegmentKey(submission=submission, created_at=NOW)
            job.apply(f.Accepted(**job.head("launcher"), segment=segment, backend="b", cluster="c", ref=submission))
            if stopped_after:
                job.stop()
            job.exited(submission)
        job.apply(f.GpusFreed(**job.head("launcher")), f.LauncherSealed(**job.head("launcher"), ran=not stopped_before))
        told.append(tuple(decode_event(body).job for body in job.events))
    return tuple(told)


@given(st.sampled_from([0, 1, 2]), st.data())
def test_in_any_order_and_however_often(which: int, data: st.DataObject) -> None:
    history = histories()[which]
    deliveries = [*data.draw(st.lists(st.sampled_from(history), max_size=12)), history[-1]]
    rows: dict[int, Launch] = {}
    begun = 0
    for record in deliveries:
        made = decide(record, rows, deployment="tidegate", graces=Graces(10, 60), now=NOW)
        begun += sum(row.state is State.INTENT for row in made.begun)
        for row in (*made.begun, *made.changed):
            known = rows.get(row.attempt)
            assert known is None or _ORDER.index(row.state) >= _ORDER.index(known.state), "a launch goes forward only"
            assert known is None or row.seen >= known.seen
            rows[row.attempt] = row
    assert begun <= 1
    assert all(row.state in (State.REVOKING, State.SEALED) for row in rows.values()), "its end has been seen"
