"""Workstations through their routes: started, shown, suspended and resumed, put off, stopped."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from nats.js import JetStreamContext

from services.api.workstations import JUPYTER
from shared.contracts.queries import FitAnswer, PositionsAnswer, PositionsAsked
from tests.databases import FreshDatabase
from tests.integration.api.behind import a_workstation, comes_up, goes_down
from tests.integration.api.conftest import ACME_USER, Answering, RunningApi, eventually, running, settings_for
from tests.servers import NatsServer

GATE = {"name": "capacity", "reason": "full", "scope": "cluster local", "lifted_by": "time"}


async def test_a_workstation_is_a_job_whose_whole_workspace_is_kept(api: RunningApi, rin: httpx.AsyncClient) -> None:
    given = {"gpus": 2, "env": {"A": "b"}, "idle_suspend_seconds": 1800, "max_lifetime_seconds": 28800, "name": "desk"}
    response = await rin.post("/v1/workstations", json={"command": ["serve"], **given})
    assert response.status_code == 201
    view = response.json()
    assert response.headers["location"] == f"/v1/workstations/{view['id']}"
    assert (view["kind"], view["state"], view["name"], view["phase"]) == ("workstation", "QUEUED", "desk", None)
    assert view["spec"]["outputs"] == ["."]
    assert (view["spec"]["time_limit_seconds"], view["spec"]["gpus"], view["spec"]["env"]) == (28800, 2, {"A": "b"})
    assert view["workstation"]["idle_suspend_seconds"] == 1800
    assert view["url"] == f"/v1/workstations/{view['id']}/proxy/"
    as_job = (await rin.get(f"/v1/jobs/{view['id']}")).json()
    assert {**as_job, "position": None, "url": view["url"]}.keys() == view.keys()


async def test_an_idempotency_key_starts_one_workstation(api: RunningApi, rin: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one"}
    body = {"command": ["serve"], "idle_suspend_seconds": 60}
    first, again = [(await rin.post("/v1/workstations", json=body, headers=headers)).json() for _ in range(2)]
    assert first["id"] == again["id"]
    other = await rin.post("/v1/workstations", json=body | {"idle_suspend_seconds": 61}, headers=headers)
    assert other.status_code == 409


async def test_is_refused_as_any_job_that_could_never_pass(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    await answering(
        "gatekeeper", "fits", lambda _: FitAnswer(why_not=("needs 9 GPUs; 8 are there",)).model_dump_json().encode()
    )
    response = await rin.post("/v1/workstations", json={"command": ["serve"], "gpus": 9})
    assert response.json()["type"].endswith("can-never-run")
    assert "needs 9 GPUs" in response.json()["detail"]
    assert (await rin.get("/v1/workstations")).json()["items"] == []


WRONG: list[tuple[dict[str, object], str]] = [
    ({"command": ["x"], "idle_suspend": 5}, "did you mean idle_suspend_seconds?"),
    ({"command": ["x"], "idle_suspend_seconds": 0}, "idle_suspend_seconds: 0 was given; it is 1 or more"),
    (
        {"command": ["x"], "max_lifetime_seconds": "8h"},
        "max_lifetime_seconds: '8h' was given; it is a whole number",
    ),
    ({"command": []}, "command: a list with 0 entries was given; it is a list of at least 1 entry"),
    ({"command": [" "]}, "command: the command's first word, the program, is empty"),
    ({"command": ["x"], "env": {"1": "2"}}, "env: '1' is not a valid environment name"),
    ({"command": ["x"], "snapshot": "sha256:" + "0" * 64}, "is not stored for tenant acme"),
]


async def test_says_what_is_wrong_and_what_is_right(rin: httpx.AsyncClient) -> None:
    for body, said in WRONG:
        response = await rin.post("/v1/workstations", json=body)
        assert response.status_code == 422, body
        assert said in response.json()["detail"]


async def test_without_a_command_it_is_jupyterlab_where_that_is_installed(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    database = await service_database("api")
    settings = settings_for(database, nats_server, tmp_path / "blobs", job_path=str(programs))
    async with running(settings, database, nats_server) as api:
        rin = api.client(ACME_USER)
        refused = await rin.post("/v1/workstations", json={})
        assert refused.status_code == 422
        assert "pip install jupyterlab" in refused.json()["detail"]
        assert "$TIDEGATE_PORT" in refused.json()["detail"]
        for name in ("jupyter", "jupyter-lab"):
            (programs / name).write_text("#!/bin/sh\n")
            (programs / name).chmod(0o755)
        view = (await rin.post("/v1/workstations", json={})).json()
        assert view["spec"]["command"] == list(JUPYTER)
        assert (view["name"], view["workstation"]["keeps_prefix"]) == ("jupyterlab", True)


async def test_is_refused_where_the_ports_of_jobs_cannot_be_reached(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    database = await service_database("api")
    settings = settings_for(database, nats_server, tmp_path, workstations=False)
    async with running(settings, database, nats_server) as api:
        rin = api.client(ACME_USER)
        refused = await rin.post("/v1/workstations", json={})
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith("workstations cannot be reached in this deployment: ")
        assert (await rin.post("/v1/jobs", json={"spec": {"command": ["serve"]}})).status_code == 201


async def test_lists_workstations_only_newest_first(api: RunningApi, rin: httpx.AsyncClient) -> None:
    first = await a_workstation(rin)
    await api.submit(rin)
    second = await a_workstation(rin)
    page = (await rin.get("/v1/workstations", params={"limit": 1})).json()
    assert [item["id"] for item in page["items"]] == [second]
    rest = (await rin.get("/v1/workstations", params={"cursor": page["next_cursor"]})).json()
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == ([first], None)
    assert len((await rin.get("/v1/jobs")).json()["items"]) == 3


async def test_a_batch_job_is_no_workstation(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    for method, path in (("GET", ""), ("POST", "/suspend"), ("POST", "/stop"), ("POST", "/ticket"), ("GET", "/proxy/")):
        response = await rin.request(method, f"/v1/workstations/{job}{path}")
        assert (response.status_code, "there is no workstation" in response.json()["detail"]) == (404, True), path
    assert (await rin.get(f"/v1/jobs/{job}")).json()["state"] == "QUEUED"


async def test_shows_its_place_in_the_line_also_when_it_is_resumed(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    workstation = await a_workstation(rin)

    def positions(request: bytes) -> bytes:
        jobs = PositionsAsked.model_validate_json(request).jobs
        return PositionsAnswer(positions=dict.fromkeys(jobs, 3)).model_dump_json().encode()

    await answering("gatekeeper", "positions", positions)
    await comes_up(api, rin, workstation)
    suspending = (await rin.post(f"/v1/workstations/{workstation}/suspend")).json()
    assert (suspending["state"], suspending["phase"]) == ("RUNNING", "suspending")
    await goes_down(api, workstation)
    suspended = await api.becomes(rin, workstation, "PAUSED")
    assert (suspended["phase"], suspended["holds_gpus"], suspended["occupies_slot"]) == ("suspended", False, False)
    resumed = (await rin.post(f"/v1/workstations/{workstation}/resume")).json()
    assert (resumed["state"], resumed["attempt"]) == ("QUEUED", 2)
    await api.report("held", workstation, attempt=2, gates=[GATE])

    async def third() -> bool:
        view = (await rin.get(f"/v1/workstations/{workstation}")).json()
        return bool(view["position"] == 3 and view["gate"]["name"] == "capacity")

    await eventually(third, "its place to be shown")


async def test_shows_since_when_it_is_idle_and_lets_its_user_put_the_suspension_off(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    workstation = await a_workstation(rin, idle_suspend_seconds=600)
    early = await rin.post(f"/v1/workstations/{workstation}/snooze", json={"seconds": 3600})
    assert early.status_code == 409
    await comes_up(api, rin, workstation)
    since = datetime.now(UTC)
    suspends_at = since + timedelta(seconds=600)
    await api.report("seen_idle", workstation, idle_since=since, suspends_at=suspends_at)

    async def idle() -> bool:
        view = (await rin.get(f"/v1/workstations/{workstation}")).json()
        return view["workstation"]["suspends_at"] is not None

    await eventually(idle, "it to be seen idle")
    put_off = (await rin.post(f"/v1/workstations/{workstation}/snooze", json={"seconds": 3600})).json()["workstation"]
    assert datetime.fromisoformat(put_off["suspends_at"]) >= since + timedelta(seconds=3600)
    short = await rin.post(f"/v1/workstations/{workstation}/snooze", json={"seconds": 59})
    assert short.json()["detail"] == "seconds: 59 was given; it is 60 or more"


async def test_nothing_suspends_one_that_has_no_idle_limit(api: RunningApi, rin: httpx.AsyncClient) -> None:
    workstation = await a_workstation(rin)
    await comes_up(api, rin, workstation)
    response = await rin.post(f"/v1/workstations/{workstation}/snooze", json={"seconds": 3600})
    assert response.status_code == 409
    assert "nothing suspends this workstation" in response.json()["detail"]


async def test_a_suspension_that_is_refused_is_called_one(api: RunningApi, rin: httpx.AsyncClient) -> None:
    workstation = await a_workstation(rin)
    await rin.post(f"/v1/workstations/{workstation}/stop", json={})
    refused = await rin.post(f"/v1/workstations/{workstation}/suspend", json={})
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("suspend is not possible: ")


async def test_only_an_admin_resumes_what_an_admin_suspended(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    workstation = await a_workstation(rin)
    await ada.post(f"/v1/workstations/{workstation}/suspend", json={"reason": "over budget"})
    refused = await rin.post(f"/v1/workstations/{workstation}/resume")
    assert (refused.status_code, "over budget" in refused.json()["detail"]) == (409, True)
    assert (await ada.post(f"/v1/workstations/{workstation}/resume")).json()["state"] == "QUEUED"


async def test_stop_ends_it(api: RunningApi, rin: httpx.AsyncClient) -> None:
    workstation = await a_workstation(rin)
    stopped = (await rin.post(f"/v1/workstations/{workstation}/stop")).json()
    assert (stopped["state"], stopped["end_reason"]) == ("STOPPED", "stopped_by_user")
    assert (await rin.post(f"/v1/workstations/{workstation}/ticket")).status_code == 409
