"""Pause, resume, retry and delete of a pipeline as one: what it says may be asked, and what becomes of it."""

from typing import Any

import httpx
import pytest

from services.api.domain import replay
from shared.contracts.events import decode_event
from shared.lifecycle.record import JobRecord
from tests.integration.api.conftest import RunningApi
from tests.integration.api.situations import LET_GO, RUNS, Play

ACTIONS = ("stop", "pause", "resume", "retry", "delete")


@pytest.fixture
def play(api: RunningApi, rin: httpx.AsyncClient) -> Play:
    return Play(api, rin)


async def shown(client: httpx.AsyncClient) -> dict[str, Any]:
    """The only pipeline, once every call that it says is refused was refused with the same sentence."""
    pipeline: dict[str, Any] = (await client.get("/v1/pipelines")).json()["items"][0]
    for action in ACTIONS:
        answer = pipeline["actions"][action]
        if answer["allowed"]:
            continue
        called = await _call(client, pipeline["id"], action)
        if called.status_code == 409:
            assert called.json()["detail"] == f"{action} is not possible: {answer['why_not']}"
            assert called.json()["word"] == pipeline["word"]
        else:
            assert (called.status_code, called.json()["steps"]) == (200, pipeline["steps"]), "it is so already"
    return pipeline


async def _call(client: httpx.AsyncClient, pipeline: str, action: str) -> httpx.Response:
    if action == "delete":
        return await client.delete(f"/v1/pipelines/{pipeline}")
    return await client.post(f"/v1/pipelines/{pipeline}/{action}")


async def asked(client: httpx.AsyncClient, action: str) -> dict[str, Any]:
    """The pipeline after an action that it said is possible."""
    pipeline = await shown(client)
    assert pipeline["actions"][action] == {"allowed": True, "why_not": None}
    called = await client.post(f"/v1/pipelines/{pipeline['id']}/{action}", json={})
    assert called.status_code == 200, called.text
    after: dict[str, Any] = called.json()
    return after


def states(pipeline: dict[str, Any]) -> list[str]:
    return [step["state"] for step in pipeline["steps"]]


async def test_is_paused_in_its_second_step_resumed_and_retried_to_success(
    api: RunningApi, play: Play, rin: httpx.AsyncClient
) -> None:
    ((train,), (export,), (eval_,)) = await play.steps(1, "train", "export", "eval")
    await play.tell([train], *RUNS, "exits 0", *LET_GO)
    await play.tell([export], *RUNS)
    assert (await shown(rin))["actions"]["retry"]["why_not"] == "it has not ended: it is running"
    pausing = await asked(rin, "pause")
    assert states(pausing) == ["SUCCEEDED", "RUNNING", "PAUSED"]
    assert (await shown(rin))["actions"]["resume"]["why_not"] == "it is still pausing: resume it once it is paused"
    await play.tell([export], "dies of the stop", *LET_GO)
    assert (await shown(rin))["word"] == "paused"
    resumed = await asked(rin, "resume")
    assert (states(resumed), resumed["word"]) == (["SUCCEEDED", "QUEUED", "QUEUED"], "queued")
    await play.tell([export], *RUNS, "exits 0", *LET_GO, attempt=2)
    # Paused before its turn, so that its turn is its second attempt.
    await play.tell([eval_], *RUNS, "exits 3", *LET_GO, attempt=2)
    failed = await shown(rin)
    assert (failed["word"], failed["message"]) == ("partial", "step eval: the command exited with code 3")
    retried = await asked(rin, "retry")
    assert (states(retried), retried["word"]) == (["SUCCEEDED", "SUCCEEDED", "QUEUED"], "queued")
    await play.tell([eval_], *RUNS, "exits 0", *LET_GO, attempt=3)
    done = await shown(rin)
    assert (done["word"], done["actions"]["retry"]["why_not"]) == (
        "succeeded",
        "it succeeded already: submit it again to run it again",
    )
    for job in (train, export, eval_):
        first, *log = await api.api.reads.inputs(job)
        found = await api.api.reads.job("acme", job)
        assert found is not None
        assert replay(decode_event(first[0]).job, [entry[1:] for entry in log]) == found.record


async def test_a_step_whose_snapshot_is_gone_keeps_all_of_them_from_a_retry(
    api: RunningApi, play: Play, rin: httpx.AsyncClient
) -> None:
    digest = await play.upload(b"code")
    steps = [{"name": name, "spec": {"command": ["true"], "snapshot": digest}} for name in ("train", "eval")]
    pipeline = (await rin.post("/v1/pipelines", json={"steps": steps})).json()
    assert (await rin.post(f"/v1/pipelines/{pipeline['id']}/stop")).json()["word"] == "stopped"
    assert (await shown(rin))["actions"]["retry"]["allowed"]
    await play.lose_the_snapshot(digest)
    why_not = (await shown(rin))["actions"]["retry"]["why_not"]
    assert why_not == f"step train: its snapshot {digest} is gone: submit it again"
    assert states(await shown(rin)) == ["STOPPED", "STOPPED"]


async def test_a_step_that_was_stopped_before_its_turn_goes_on_at_once_where_those_before_it_succeeded(
    play: Play, rin: httpx.AsyncClient
) -> None:
    ((train,), (eval_,)) = await play.steps(1, "train", "eval")
    await rin.post(f"/v1/jobs/{eval_}/stop")
    await play.tell([train], *RUNS, "exits 0", *LET_GO)
    alone = await rin.post(f"/v1/jobs/{eval_}/retry")
    assert alone.status_code == 409
    assert "retry its pipeline" in alone.json()["detail"]
    await asked(rin, "retry")
    view = (await rin.get(f"/v1/jobs/{eval_}")).json()
    assert (view["state"], view["pipeline"]["upstream_done"]) == ("QUEUED", True)
    assert JobRecord.model_validate(view).attempt == 2


async def test_an_admins_pause_of_a_pipeline_is_ended_by_an_admin(
    play: Play, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    await play.steps(1, "train", "eval")
    pipeline = (await shown(rin))["id"]
    await ada.post(f"/v1/pipelines/{pipeline}/pause", json={"reason": "maintenance"})
    why_not = (await shown(rin))["actions"]["resume"]["why_not"]
    assert why_not == "step train: an admin paused it (maintenance): only an admin can resume it"
    assert (await ada.get(f"/v1/pipelines/{pipeline}")).json()["actions"]["resume"]["allowed"]
    assert states((await ada.post(f"/v1/pipelines/{pipeline}/resume")).json()) == ["QUEUED", "QUEUED"]
