"""A job from its submit through the facts of the services to its end, over real PostgreSQL and NATS."""

from datetime import UTC, datetime

import httpx
from nats.js import JetStreamContext

from shared.contracts.events import decode_event
from tests.integration.api.conftest import RunningApi

SEGMENT = {"submission": "s1", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}


async def test_publishes_queued_when_a_job_is_submitted(
    api: RunningApi, rin: httpx.AsyncClient, streams: JetStreamContext
) -> None:
    view = await api.submit(rin, gpus=2)
    assert (view["state"], view["seq"], view["tenant"], view["user"]) == ("QUEUED", 1, "acme", "rin")
    subscription = await streams.subscribe("jobs.v1.acme.>", ordered_consumer=True)
    message = await subscription.next_msg(timeout=5)
    assert message.subject == "jobs.v1.acme.queued"
    assert message.headers is not None
    assert message.headers["ce-id"] == f"{view['id']}/1/1"
    assert decode_event(message.data).job.id == view["id"]


async def test_takes_a_job_to_its_end_on_the_services_facts(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin, gpus=1))["id"]
    await api.report("admitted", job, admission=1)
    await api.becomes(rin, job, "SUBMITTED")
    await api.report("input_valid", job)
    await api.report("staged", job, directory="x", nothing_to_copy=True)
    await api.report("accepted", job, segment=SEGMENT, backend="local", cluster="local", ref="r1")
    await api.becomes(rin, job, "PENDING")
    began, ended = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC)
    await api.report("seen_running", job, segment=SEGMENT, started_at=began, raw_state="RUNNING")
    running = await api.becomes(rin, job, "RUNNING")
    assert (running["holds_gpus"], running["occupies_slot"], running["counts_gpu_time"]) == (True, True, True)
    await api.report(
        "exited",
        job,
        segment=SEGMENT,
        code=0,
        started_at=began,
        ended_at=ended,
        raw_state="EXITED",
        stop_recorded=False,
    )
    await api.report("gpus_freed", job)
    await api.report("launcher_sealed", job, ran=True)
    done = await api.becomes(rin, job, "SUCCEEDED")
    assert done["gpu_seconds"] == "1.500"
    assert (done["holds_gpus"], done["occupies_slot"], done["counts_gpu_time"]) == (False, False, False)
    assert [stage["status"] for stage in done["stages"]] == ["passed"] * 5
