"""Who may come in: every route refuses without a token and with another tenant's; tokens, roles, one tenant only."""

import re
from pathlib import Path

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from nats.js import JetStreamContext

from services.api.app import create_app
from services.api.problems import Problem
from tests.databases import FreshDatabase
from tests.integration.api.conftest import ACME_ADMIN, ACME_USER, RunningApi, running, settings_for
from tests.servers import NatsServer

OPEN_TO_EVERY_TENANT = {
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/batch"),
    ("GET", "/v1/jobs"),
    ("POST", "/v1/pipelines"),
    ("GET", "/v1/pipelines"),
    ("POST", "/v1/workstations"),
    ("GET", "/v1/workstations"),
    ("GET", "/v1/events"),
    ("GET", "/v1/usage"),
    ("GET", "/v1/quotas"),
    ("GET", "/v1/whoami"),
    ("GET", "/v1/openapi.json"),
    ("HEAD", "/v1/snapshots/{digest}"),
    ("PUT", "/v1/snapshots/{digest}"),
}
"""What acts on the token's own tenant only, whoever asks; each has a test of its own that it does."""


def _routes(api: RunningApi) -> list[tuple[str, str]]:
    app, _, _ = create_app(api.api.settings)
    routes = list(iter_route_contexts(app.routes))
    assert len(routes) >= 26
    return sorted((method, str(route.path)) for route in routes for method in route.methods or ())


def _filled(path: str, job: str, pipeline: str = "x", workstation: str = "x") -> str:
    values = {
        "job": job,
        "pipeline": pipeline,
        "workstation": workstation,
        "digest": "sha256:" + "a" * 64,
        "tenant": "acme",
    }
    values |= {"number": "1", "service": "api"}
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: values.get(found[1], "x"), path)


async def test_every_route_refuses_a_call_without_a_valid_token(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin, command=["a-word-of-acme"]))["id"]
    for token in (None, "nobody's token of some length", "x" * 5000):
        client = api.client(token)
        for method, path in _routes(api):
            response = await client.request(method, _filled(path, job))
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert "a-word-of-acme" not in response.text
    assert (await api.client(None).get("/nothing/here")).status_code == 401


async def test_every_route_refuses_another_tenants_token(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin, command=["a-word-of-acme"]))["id"]
    steps = [{"name": "a-word-of-acme", "spec": {"command": ["true"]}}]
    pipeline = (await rin.post("/v1/pipelines", json={"steps": steps})).json()["id"]
    workstation = (await rin.post("/v1/workstations", json={"command": ["a-word-of-acme"]})).json()["id"]
    for method, path in _routes(api):
        if (method, path) in OPEN_TO_EVERY_TENANT:
            continue
        body: dict[str, object] | None = {} if method in ("POST", "PUT") else None
        response = await kay.request(method, _filled(path, job, pipeline, workstation), json=body)
        assert response.status_code in (403, 404), (method, path, response.text)
        assert "a-word-of-acme" not in response.text


async def test_shows_another_tenants_job_as_an_id_that_never_was(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    theirs = (await api.submit(rin))["id"]
    never = theirs[:-4] + "zzzz"
    answers = [(await kay.get(f"/v1/jobs/{job}")).text.replace(job, "ID") for job in (theirs, never)]
    assert answers[0] == answers[1]


async def test_lists_and_finds_only_the_tokens_tenant(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin))["id"]
    assert (await kay.get("/v1/jobs")).json()["items"] == []
    assert (await kay.get("/v1/jobs", params={"cursor": job})).json()["items"] == []
    assert [item["id"] for item in (await ada.get("/v1/jobs")).json()["items"]] == [job]
    assert (await kay.get("/v1/whoami")).json()["tenant"] == "umbra"


async def test_a_users_token_does_nothing_that_needs_an_admin(api: RunningApi, rin: httpx.AsyncClient) -> None:
    for method, path in _routes(api):
        if path.startswith(("/v1/tokens", "/v1/dead-letters", "/v1/orphans")) or (method, path) == (
            "PUT",
            "/v1/quotas/{tenant}",
        ):
            body = {"tenant": "acme", "user": "x"} if method == "POST" else {"gpus": 1} if method == "PUT" else None
            response = await rin.request(method, _filled(path, "x"), json=body)
            assert response.status_code == 403, (method, path)


async def test_makes_lists_and_revokes_tokens(api: RunningApi, ada: httpx.AsyncClient) -> None:
    made = (await ada.post("/v1/tokens", json={"tenant": "newcomer", "user": "lee", "name": "laptop"})).json()
    lee = api.client(made["token"])
    assert (await lee.get("/v1/whoami")).json() | {"token_id": ""} == {
        "tenant": "newcomer",
        "user": "lee",
        "role": "user",
        "token_id": "",
    }
    listed = (await ada.get("/v1/tokens")).text
    assert made["id"] in listed
    assert made["token"] not in listed
    assert (await ada.delete(f"/v1/tokens/{made['id']}")).status_code == 204
    assert (await lee.get("/v1/whoami")).status_code == 401
    assert (await ada.delete("/v1/tokens/t0000")).status_code == 404


async def test_describes_every_route_and_how_to_come_in(api: RunningApi, rin: httpx.AsyncClient) -> None:
    document = (await rin.get("/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(_described(api))
    submit = document["paths"]["/v1/jobs"]["post"]
    assert submit["security"] == [{"HTTPBearer": []}]
    assert "application/problem+json" in submit["responses"]["422"]["content"]


def _described(api: RunningApi) -> list[tuple[str, str]]:
    routes = [(method, path.replace("{path:output}", "{path}")) for method, path in _routes(api)]
    return [route for route in routes if route != ("GET", "/v1/openapi.json")]


async def test_keeps_only_the_hash_of_a_token(api: RunningApi) -> None:
    rows = await api.service.db.fetch("SELECT * FROM tokens")
    assert len(rows) == 3
    assert ACME_USER not in str([dict(row) for row in rows])


async def test_keeps_the_last_admins_token(api: RunningApi, ada: httpx.AsyncClient) -> None:
    own = (await ada.get("/v1/whoami")).json()["token_id"]
    refused = await ada.delete(f"/v1/tokens/{own}")
    assert refused.status_code == 409
    assert "last admin" in refused.json()["detail"]


async def test_refuses_a_tenant_whose_name_is_none(ada: httpx.AsyncClient) -> None:
    for tenant in ("", "Acme", "a.b", "a*", "../x", "x" * 41):
        assert (await ada.post("/v1/tokens", json={"tenant": tenant, "user": "x"})).status_code == 422, tenant


async def test_refuses_a_second_tenant_where_only_one_is_allowed(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    database = await service_database("api")
    tokens = settings_for(database, nats_server, tmp_path).bootstrap_tokens[:2]
    settings = settings_for(database, nats_server, tmp_path, single_tenant=True, bootstrap_tokens=tokens)
    async with running(settings, database, nats_server) as api:
        ada = api.client(ACME_ADMIN)
        refused = await ada.post("/v1/tokens", json={"tenant": "umbra", "user": "kay"})
        assert refused.status_code == 409
        assert "does not run as root" in refused.json()["detail"]
        assert (await ada.post("/v1/tokens", json={"tenant": "acme", "user": "lee"})).status_code == 201
    async with running(settings, database, nats_server) as api:  # the same tokens again are no new ones
        assert await api.service.db.fetchval("SELECT count(*) FROM tokens") == 3
        with pytest.raises(Problem, match="does not run as root"):
            await api.api.access.create("umbra", "kay", "user", None, api.api.clock.now())
