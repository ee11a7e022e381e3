"""The computed fields of a job's view."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.api.views import job_view
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance, create
from shared.lifecycle.explain import seconds
from shared.lifecycle.record import JobRecord, Resources

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEGMENT = f.SegmentKey(submission="s", created_at=NOW)


def _running(gpus: int, started_at: datetime) -> JobRecord:
    record = create(
        id="j" + "0" * 26,
        tenant="acme",
        user="rin",
        name="n",
        spec_digest="sha256:" + "a" * 64,
        resources=Resources(gpus=gpus),
        has_outputs=False,
        now=NOW,
    )

    def base(n: int) -> dict[str, Any]:
        version = f.Version(n=n)
        return {"job": record.id, "tenant": "acme", "attempt": 1, "version": version, "at": NOW, "source": "t"}

    inputs: list[f.AnyFact] = [
        f.Admitted(**base(1), admission=1),
        f.Staged(**base(2), directory="d", nothing_to_copy=True),
        f.SeenRunning(**base(3), segment=SEGMENT, started_at=started_at, raw_state="R"),
    ]
    return advance(record, inputs, NOW).record


def test_counts_the_running_segment_up_to_now() -> None:
    view = job_view(_running(4, NOW), {}, NOW + timedelta(milliseconds=1234), is_admin=False)
    assert (view["state"], view["gpu_seconds"], view["counts_gpu_time"]) == ("RUNNING", "4.936", True)
    assert (view["holds_gpus"], view["occupies_slot"]) == (True, True)


def test_a_clock_that_is_ahead_gives_no_negative_time() -> None:
    view = job_view(_running(1, NOW + timedelta(seconds=9)), {}, NOW, is_admin=False)
    assert view["gpu_seconds"] == "0.000"


def test_a_job_without_gpus_counts_none() -> None:
    view = job_view(_running(0, NOW), {}, NOW + timedelta(seconds=5), is_admin=False)
    assert (view["gpu_seconds"], view["counts_gpu_time"], view["holds_gpus"]) == ("0.000", False, False)


def test_writes_milliseconds_as_seconds() -> None:
    assert [seconds(given) for given in (0, 7, 1250, 3_600_000)] == ["0.000", "0.007", "1.250", "3600.000"]


def test_says_why_an_action_is_not_possible() -> None:
    actions = job_view(_running(1, NOW), {}, NOW, is_admin=False)["actions"]
    assert actions["stop"] == {"allowed": True, "why_not": None}
    assert actions["hold"] == {"allowed": False, "why_not": "it was let through already: pause it instead"}
    assert "not offered by this version" in actions["recopy"]["why_not"]
    assert {"stop", "pause", "resume", "retry", "delete"} <= set(actions)


def test_shows_the_gates_as_they_are_now() -> None:
    record = create(
        id="j" + "0" * 26,
        tenant="acme",
        user="rin",
        name="n",
        spec_digest="d",
        resources=Resources(),
        has_outputs=False,
        now=NOW,
    )
    gate = f.Gate(name="capacity", reason="needs 8 GPUs; 4 of 8 are free", scope="s", lifted_by="time")
    view = job_view(record, {}, NOW, is_admin=False, position=2, gates=[gate])
    assert (view["gate"]["name"], view["gate"]["position"]) == ("capacity", 2)
    assert view["closed_gates"][0]["reason"] == gate.reason
    assert view["stages"][0]["waiting_on"] == "capacity: needs 8 GPUs; 4 of 8 are free"
    assert job_view(record, {}, NOW, is_admin=False)["gate"] is None
