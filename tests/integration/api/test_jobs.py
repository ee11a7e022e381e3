"""A job from its submit through the facts of the services to its end, over real PostgreSQL and NATS."""

from datetime import UTC, datetime
from typing import Any

import httpx
from nats.js import JetStreamContext

from services.api.domain import replay
from shared.contracts.events import decode_event
from tests.integration.api.conftest import RunningApi
from tests.patience import PATIENCE_SECONDS

SEGMENT = {"submission": "s1", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
BEGAN = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
ENDED = datetime(2026, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC)


async def _run_to_its_end(api: RunningApi, job: str) -> None:
    await api.report("admitted", job, admission=1)
    await api.report("input_valid", job)
    await api.report("staged", job, directory="x", nothing_to_copy=True)
    await api.report("accepted", job, segment=SEGMENT, backend="local", cluster="local", ref="r1")
    await api.report("seen_running", job, segment=SEGMENT, started_at=BEGAN, raw_state="RUNNING")
    exited: dict[str, Any] = {
        "code": 0,
        "started_at": BEGAN,
        "ended_at": ENDED,
        "raw_state": "EXITED",
        "stop_recorded": False,
    }
    await api.report("exited", job, segment=SEGMENT, **exited)
    await api.report("gpus_freed", job)
    await api.report("launcher_sealed", job, ran=True)


async def test_publishes_queued_when_a_job_is_submitted(
    api: RunningApi, rin: httpx.AsyncClient, streams: JetStreamContext
) -> None:
    view = await api.submit(rin, gpus=2)
    assert (view["state"], view["seq"], view["tenant"], view["user"]) == ("QUEUED", 1, "acme", "rin")
    subscription = await streams.subscribe("jobs.v1.acme.>", ordered_consumer=True)
    message = await subscription.next_msg(timeout=PATIENCE_SECONDS)
    assert message.subject == "jobs.v1.acme.queued"
    assert message.headers is not None
    assert message.headers["ce-id"] == f"{view['id']}/1/1"
    assert decode_event(message.data).job.id == view["id"]


async def test_takes_a_job_to_its_end_on_the_services_facts(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin, gpus=1))["id"]
    await api.report("admitted", job, admission=1)
    await api.becomes(rin, job, "SUBMITTED")
    await api.report("accepted", job, segment=SEGMENT, backend="local", cluster="local", ref="r1")
    await api.becomes(rin, job, "PENDING")
    await api.report("seen_running", job, segment=SEGMENT, started_at=BEGAN, raw_state="RUNNING")
    running = await api.becomes(rin, job, "RUNNING")
    assert (running["holds_gpus"], running["occupies_slot"], running["counts_gpu_time"]) == (True, True, True)
    await _run_to_its_end(api, job)
    done = await api.becomes(rin, job, "SUCCEEDED")
    assert done["gpu_seconds"] == "1.500"
    assert (done["holds_gpus"], done["occupies_slot"], done["counts_gpu_time"]) == (False, False, False)
    assert [stage["status"] for stage in done["stages"]] == ["passed"] * 5


async def test_replaying_the_logged_inputs_gives_the_current_record(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin, gpus=1, outputs=["model/**"]))["id"]
    await rin.post(f"/v1/jobs/{job}/hold", json={"reason": "not yet"})
    await api.report("admitted", job, admission=1)  # refused: a hold came first
    await rin.post(f"/v1/jobs/{job}/release")
    await _run_to_its_end(api, job)
    await api.report("admitted", job, admission=2)
    await api.becomes(rin, job, "SUCCEEDED")
    log = await api.api.reads.inputs(job)
    first = decode_event(log[0][0]).job
    found = await api.api.reads.job("acme", job)
    assert found is not None
    assert replay(first, [entry[1:] for entry in log[1:]]) == found.record
    assert found.record.seq == len(log) > 2


async def test_answers_a_command_finally_and_logs_it(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    for reason in (b'"a\\u0000"', b'"\\ud800"', b'""'):
        wrong = await rin.post(
            f"/v1/jobs/{job}/hold",
            content=b'{"reason": %b}' % reason,
            headers={"Content-Type": "application/json"},
        )
        assert (wrong.status_code, "reason" in wrong.json()["detail"]) == (422, True)
    held = (await rin.post(f"/v1/jobs/{job}/hold", json={"reason": "licence server is down"})).json()
    assert held["hold"]["reason"] == "licence server is down"
    assert held["actions"]["release"] == {"allowed": True, "why_not": None}
    again = await rin.post(f"/v1/jobs/{job}/hold", json={})
    assert (again.status_code, again.json()["seq"]) == (200, held["seq"])
    stopped = (await rin.post(f"/v1/jobs/{job}/stop")).json()
    assert (stopped["state"], stopped["end_reason"]) == ("STOPPED", "stopped_by_user")
    refused = await rin.post(f"/v1/jobs/{job}/stop")
    assert refused.status_code == 409
    assert refused.json()["detail"] == "stop is not possible: it is stopped already"
    events = (await rin.get(f"/v1/jobs/{job}/events")).json()["items"]
    assert [event["type"] for event in events] == ["queued", "held", "stopped"]


async def test_only_an_admin_releases_what_an_admin_holds(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin))["id"]
    assert (await ada.post(f"/v1/jobs/{job}/hold", json={"reason": "audit"})).status_code == 200
    assert (await rin.post(f"/v1/jobs/{job}/release")).status_code == 409
    assert (await ada.post(f"/v1/jobs/{job}/release")).json()["hold"] is None


async def test_submits_a_thousand_jobs_in_one_request(api: RunningApi, rin: httpx.AsyncClient) -> None:
    jobs = [{"name": f"n{number}", "spec": {"command": ["echo", str(number % 7)]}} for number in range(1000)]
    ids = (await rin.post("/v1/jobs/batch", json={"jobs": jobs})).json()["ids"]
    assert len(ids) == len(set(ids)) == 1000
    assert ids == sorted(ids)
    shown, cursor = [], None
    while True:
        page = (await rin.get("/v1/jobs", params={"limit": 200} | ({"cursor": cursor} if cursor else {}))).json()
        shown += [(item["id"], item["name"]) for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert shown == [(id_, f"n{number}") for number, id_ in reversed(list(enumerate(ids)))]


async def test_lists_by_state_and_name(api: RunningApi, rin: httpx.AsyncClient) -> None:
    first = (await rin.post("/v1/jobs", json={"name": "a", "spec": {"command": ["true"]}})).json()["id"]
    second = (await rin.post("/v1/jobs", json={"name": "b", "spec": {"command": ["true"]}})).json()["id"]
    await rin.post(f"/v1/jobs/{first}/stop")

    async def ids(**params: str) -> list[str]:
        return [item["id"] for item in (await rin.get("/v1/jobs", params=params)).json()["items"]]

    assert await ids(state="stopped") == [first]
    assert await ids(state="QUEUED") == [second]
    assert await ids(name="b") == [second]
    wrong = await rin.get("/v1/jobs", params={"state": "QUEUD"})
    assert wrong.json()["detail"] == "state: 'QUEUD' is no state: did you mean QUEUED?"


async def test_gives_services_the_specs_of_a_tenants_digests(
    api: RunningApi, rin: httpx.AsyncClient, streams: JetStreamContext
) -> None:
    view = await api.submit(rin, env={"A": "1"})
    body = b'{"tenant": "%b", "digests": ["' + view["spec_digest"].encode() + b'", "sha256:unknown"]}'
    answer = await api.service.call("api", "specs", body % b"acme")
    assert answer == b'{"specs":{"%b":' % view["spec_digest"].encode() + answer.split(b":", 3)[3]
    assert b'"env":{"A":"1"}' in answer
    assert await api.service.call("api", "specs", body % b"umbra") == b'{"specs":{}}'
