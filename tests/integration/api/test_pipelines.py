"""Pipelines over HTTP: submitted, listed, stopped as one; and what the end of a step means for those after it."""

import asyncio
from typing import Any

import httpx

from shared.contracts.ids import is_id
from tests.integration.api.conftest import RunningApi

TRUE = {"spec": {"command": ["true"]}}
THREE = {"name": "digits", "steps": [TRUE | {"name": name} for name in ("train", "export", "eval")]}


async def submit(client: httpx.AsyncClient, body: dict[str, Any] = THREE, **headers: str) -> dict[str, Any]:
    response = await client.post("/v1/pipelines", json=body, headers=headers)
    assert response.status_code == 201, response.text
    view: dict[str, Any] = response.json()
    return view


async def refused(client: httpx.AsyncClient, body: Any) -> str:
    response = await client.post("/v1/pipelines", json=body)
    assert response.status_code == 422, response.text
    return str(response.json()["detail"])


async def test_makes_one_job_per_step_whose_ids_rise(api: RunningApi, rin: httpx.AsyncClient) -> None:
    view = await submit(rin)
    assert (view["word"], view["name"], view["user"], view["tenant"]) == ("queued", "digits", "rin", "acme")
    assert is_id(view["id"])
    jobs = [step["job"] for step in view["steps"]]
    assert jobs == sorted(jobs)
    assert [step["name"] for step in view["steps"]] == ["train", "export", "eval"]
    shown = await rin.get(f"/v1/pipelines/{view['id']}")
    assert shown.json() == view
    second = (await rin.get(f"/v1/jobs/{jobs[1]}")).json()
    assert second["name"] == "export"
    assert second["pipeline"] == {
        "id": view["id"],
        "step": "export",
        "index": 1,
        "after": jobs[0],
        "upstream_done": False,
    }
    assert (await rin.get(f"/v1/jobs/{jobs[0]}")).json()["pipeline"]["upstream_done"] is True


async def test_names_the_steps_that_have_no_name_after_their_programs(rin: httpx.AsyncClient) -> None:
    steps = [{"spec": {"command": ["/bin/sh", "-c", "x"]}}, {"spec": {"command": ["sh"]}}, TRUE | {"name": "sh-2"}]
    view = await submit(rin, {"steps": steps})
    assert view["name"] == "sh"
    assert [step["name"] for step in view["steps"]] == ["sh", "sh-3", "sh-2"]


async def test_gives_the_project_to_the_steps_that_name_none(rin: httpx.AsyncClient) -> None:
    view = await submit(rin, {"project": "vision", "steps": [TRUE, TRUE | {"project": "default"}]})
    assert view["project"] == "vision"
    projects = [(await rin.get(f"/v1/jobs/{step['job']}")).json()["project"] for step in view["steps"]]
    assert projects == ["vision", "default"]


async def test_refuses_a_pipeline_that_could_not_run_and_names_the_step(rin: httpx.AsyncClient) -> None:
    assert "steps: a list with 0 entries was given; it is a list of at least 1 entry" in await refused(
        rin, {"steps": []}
    )
    assert "at most 20 entries" in await refused(rin, {"steps": [TRUE] * 21})
    assert "steps is missing" in await refused(rin, {"name": "x"})
    twice = [TRUE | {"name": "a"}, TRUE | {"name": "a"}]
    assert "two steps are named 'a': give each a name of its own" in await refused(rin, {"steps": twice})
    wrong = {"steps": [TRUE, {"spec": {"command": ["true"], "nodes": 0}}]}
    assert (await refused(rin, wrong)).startswith("steps[1].spec.nodes: 0 was given")
    image = {"steps": [{"spec": {"command": ["true"], "image": "x"}}]}
    assert (await refused(rin, image)).startswith("steps[0].spec.image: ")
    missing = {"steps": [TRUE, {"spec": {"command": ["true"], "snapshot": "sha256:" + "0" * 64}}]}
    assert (await refused(rin, missing)).startswith("steps[1].spec.snapshot: ")
    assert (await rin.get("/v1/jobs")).json()["items"] == []
    assert (await rin.get("/v1/pipelines")).json() == {"items": [], "next_cursor": None}


async def test_the_same_idempotency_key_gives_the_same_pipeline(rin: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(rin.post("/v1/pipelines", json=THREE, headers=key) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert len((await rin.get("/v1/pipelines")).json()["items"]) == 1
    assert len((await rin.get("/v1/jobs")).json()["items"]) == 3
    other = await rin.post("/v1/pipelines", json=THREE | {"name": "other"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "urn:tidegate:problem:idempotency-key-reused")
    assert (await rin.post("/v1/jobs", json=TRUE, headers=key)).status_code == 409


async def test_lists_pipelines_in_pages_newest_first(rin: httpx.AsyncClient) -> None:
    made = [(await submit(rin))["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await rin.get("/v1/pipelines", params={"limit": 2, **cursor})).json()
        seen += [item["id"] for item in page["items"]]
        assert all([step["state"] for step in item["steps"]] == ["QUEUED"] * 3 for item in page["items"])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == sorted(made, reverse=True)
    wrong = await rin.get("/v1/pipelines", params={"cursor": "j" + "0" * 26})
    assert (wrong.status_code, "next_cursor" in wrong.json()["detail"]) == (422, True)


async def test_another_tenants_pipeline_is_like_one_that_never_was(
    rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    view = await submit(rin)
    for path in (view["id"], "p" + "0" * 26, view["steps"][0]["job"], "x", "%00"):
        for response in (
            await kay.get(f"/v1/pipelines/{path}"),
            await kay.post(f"/v1/pipelines/{path}/stop"),
        ):
            assert response.status_code == 404
            assert response.json()["detail"].startswith("there is no pipeline ")
    assert (await kay.get("/v1/pipelines")).json()["items"] == []
    assert (await rin.get(f"/v1/pipelines/{view['id']}")).json() == view


async def test_stops_every_step_at_once(rin: httpx.AsyncClient) -> None:
    view = await submit(rin)
    stopped = (await rin.post(f"/v1/pipelines/{view['id']}/stop", json={})).json()
    assert [step["state"] for step in stopped["steps"]] == ["STOPPED"] * 3
    assert [step["end_reason"] for step in stopped["steps"]] == ["stopped_by_user"] * 3
    assert stopped["word"] == "stopped"
    assert stopped["message"].startswith("step train: stopped: by rin at ")
    assert stopped["finished_at"] is not None
    assert stopped["actions"]["stop"] == {"allowed": False, "why_not": "it is stopped already"}
    again = await rin.post(f"/v1/pipelines/{view['id']}/stop")
    assert (again.status_code, again.json()["detail"]) == (409, "stop is not possible: it is stopped already")


async def test_a_step_that_is_stopped_alone_leaves_the_later_ones_out_of_reach(rin: httpx.AsyncClient) -> None:
    view = await submit(rin)
    jobs = [step["job"] for step in view["steps"]]
    assert (await rin.post(f"/v1/jobs/{jobs[1]}/stop")).json()["state"] == "STOPPED"
    shown = (await rin.get(f"/v1/pipelines/{view['id']}")).json()
    assert [(step["state"], step["end_reason"]) for step in shown["steps"]] == [
        ("QUEUED", None),
        ("STOPPED", "stopped_by_user"),
        ("STOPPED", "upstream_failed"),
    ]
    assert shown["steps"][2]["message"] == "a step before it did not succeed: step export"
    assert shown["word"] == "queued"
