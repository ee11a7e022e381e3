"""Deleting jobs: what goes with one, what stays for others, and every moment at which somebody else needs the same."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import obstore
import orjson
import pytest
from nats.js import JetStreamContext

from services.api import stored
from services.api.domain import take_command
from services.api.store import Changes
from shared.contracts.events import decode_event
from shared.contracts.ids import new_id
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.lifecycle.inputs import Delete
from tests.integration.api.conftest import RunningApi, eventually
from tests.integration.api.situations import LET_GO, RUNS, Play
from tests.integration.api.test_streams import reading
from tests.patience import PATIENCE_SECONDS

WAITS = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""

ANOTHER = """
INSERT INTO jobs (id, tenant, state, name, spec_digest, epoch, seq, record, submitted_at, updated_at)
SELECT $2, tenant, state, name, spec_digest, epoch, seq, record, submitted_at, updated_at FROM jobs WHERE id = $1
"""


@pytest.fixture
def play(api: RunningApi, rin: httpx.AsyncClient) -> Play:
    return Play(api, rin)


def blobs(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def ended(play: Play, content: bytes) -> tuple[str, str]:
    """A stopped job, the only one of its snapshot, and the digest of that."""
    digest = await play.upload(content)
    (job,) = await play.submitted(1, snapshot=digest)
    assert (await play.client.post(f"/v1/jobs/{job}/stop")).is_success
    return job, digest


async def deleted(client: httpx.AsyncClient, job: str) -> None:
    answer = await client.delete(f"/v1/jobs/{job}")
    assert answer.status_code == 204, answer.text


async def is_known(client: httpx.AsyncClient, digest: str) -> bool:
    return (await client.head(f"/v1/snapshots/{digest}")).status_code == 200


async def forgotten_in(tx: Changes, api: RunningApi, job: str) -> str | None:
    """The job deleted in a transaction that is still open."""
    now = api.service.clock.now()
    record = (await tx.lock([job]))[job]
    change, _ = take_command(record, Delete(actor="rin", at=now), now)
    assert change is not None
    return await tx.delete(change)


async def waiting(api: RunningApi, task: asyncio.Task[Any]) -> None:
    """Return once the request can go on no further: it waits for the transaction that is open, or has ended."""

    async def stands() -> bool:
        return task.done() or await api.service.db.fetchval(WAITS) > 0

    await eventually(stands, "the request to wait for the open transaction")


async def test_the_last_job_that_names_a_snapshot_takes_it_along(
    play: Play, rin: httpx.AsyncClient, tmp_path: Path
) -> None:
    digest = await play.upload(b"the code")
    one, two = [await play.submitted(1, snapshot=digest) for _ in range(2)]
    other = (await rin.post("/v1/jobs", json={"spec": {"command": ["other"], "snapshot": digest}})).json()["id"]
    for job in (*one, *two, other):
        await rin.post(f"/v1/jobs/{job}/stop")
    for job in (*one, *two):
        await deleted(rin, job)
        assert await is_known(rin, digest), "a job that may be retried needs it"
    assert (await rin.get(f"/v1/jobs/{other}")).json()["actions"]["retry"]["allowed"]
    await deleted(rin, other)
    assert not await is_known(rin, digest)
    assert blobs(tmp_path) == []
    counts = "SELECT (SELECT count(*) FROM specs), (SELECT count(*) FROM jobs), (SELECT count(*) FROM removals)"
    row = await play.api.service.db.fetchrow(counts)
    assert row is not None
    assert tuple(row) == (0, 0, 0)


async def test_what_is_said_later_of_a_deleted_job_is_dropped(
    api: RunningApi, play: Play, rin: httpx.AsyncClient, streams: JetStreamContext
) -> None:
    job, _ = await ended(play, b"late")
    async with reading(rin, f"/v1/jobs/{job}/events?follow=forever") as reader:
        await reader.has(2)
        await deleted(rin, job)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.ended.wait()
    assert [event.event for event in reader.events] == ["queued", "stopped", "deleted"]
    await play.tell([job], "is admitted")
    assert await api.service.db.fetchval("SELECT count(*) FROM orphans") == 0
    gone = await rin.get(f"/v1/jobs/{job}")
    assert gone.status_code == 404
    assert gone.json()["detail"].startswith(f"job {job} was deleted at ")
    assert (await rin.get("/v1/jobs")).json()["items"] == []
    assert (await rin.delete(f"/v1/jobs/{job}")).status_code == 204, "it is so already"
    answer = await api.service.call("api", "newest", NewestAsked(jobs=(job,)).model_dump_json().encode())
    (newest,) = NewestAnswer.model_validate_json(answer).events
    assert decode_event(newest.encode()).job.deleted


async def test_the_answer_to_an_idempotency_key_outlives_its_job(play: Play, rin: httpx.AsyncClient) -> None:
    body, key = {"spec": {"command": ["true"]}}, {"Idempotency-Key": "k"}
    first = await rin.post("/v1/jobs", json=body, headers=key)
    await rin.post(f"/v1/jobs/{first.json()['id']}/stop")
    await deleted(rin, first.json()["id"])
    again = await rin.post("/v1/jobs", json=body, headers=key)
    assert (again.status_code, again.text) == (201, first.text)


async def test_a_pipeline_shows_the_steps_that_were_deleted_and_goes_with_the_last(
    play: Play, rin: httpx.AsyncClient
) -> None:
    ((train,), (export,), (eval_,)) = await play.steps(1, "train", "export", "eval")
    await play.tell([train], *RUNS, "exits 0", *LET_GO)
    await play.tell([export], *RUNS, "exits 3", *LET_GO)
    pipeline = (await rin.get("/v1/pipelines")).json()["items"][0]
    assert (pipeline["word"], pipeline["actions"]["retry"]["allowed"]) == ("partial", True)
    await play.forget([train])
    shown = (await rin.get(f"/v1/pipelines/{pipeline['id']}")).json()
    assert shown["word"] == "partial"
    assert [step["name"] for step in shown["steps"] if step["deleted_at"]] == ["train"]
    assert shown["steps"][0] | {"deleted_at": None} == pipeline["steps"][0]
    assert shown["actions"]["retry"] == {
        "allowed": False,
        "why_not": "step train was deleted: submit the pipeline again",
    }
    refused = await rin.post(f"/v1/pipelines/{pipeline['id']}/retry")
    assert refused.json()["detail"] == f"retry is not possible: {shown['actions']['retry']['why_not']}"
    for job in (eval_, export):
        await deleted(rin, job)
    assert (await rin.get(f"/v1/pipelines/{pipeline['id']}")).status_code == 404
    assert (await rin.get("/v1/pipelines")).json()["items"] == []


async def test_steps_are_deleted_from_the_last_on_while_one_could_be_retried(
    play: Play, rin: httpx.AsyncClient
) -> None:
    ((train,), (export,), (eval_,)) = await play.steps(1, "train", "export", "eval")
    await play.tell([train], *RUNS, "exits 0", *LET_GO)
    await play.tell([export], *RUNS, "exits 3", *LET_GO)
    for job, step in ((train, "eval"), (export, "eval")):
        refused = await rin.delete(f"/v1/jobs/{job}")
        assert refused.status_code == 409
        assert refused.json()["detail"] == (
            f"delete is not possible: step {step} did not succeed, and could not be retried without this one: "
            "delete the steps that did not succeed first, from the last on"
        )
    (pipeline,) = (await rin.get("/v1/pipelines")).json()["items"]
    assert pipeline["actions"]["retry"]["allowed"]
    for job in (eval_, export, train):
        await deleted(rin, job)
    assert (await rin.get(f"/v1/pipelines/{pipeline['id']}")).status_code == 404


async def test_a_pipeline_that_has_ended_is_deleted_as_one(play: Play, rin: httpx.AsyncClient, tmp_path: Path) -> None:
    digest = await play.upload(b"code")
    steps = [{"name": name, "spec": {"command": ["true"], "snapshot": digest}} for name in ("train", "export")]
    pipeline = (await rin.post("/v1/pipelines", json={"steps": steps})).json()
    address, (train, export) = f"/v1/pipelines/{pipeline['id']}", (step["job"] for step in pipeline["steps"])
    await play.tell([train], *RUNS, "exits 3")
    moving = (await rin.get(address)).json()
    assert moving["actions"]["delete"] == {"allowed": False, "why_not": "it has not ended: stop it first"}
    assert (await rin.delete(address)).json()["detail"] == "delete is not possible: it has not ended: stop it first"
    await play.tell([train], *LET_GO)
    assert (await rin.get(address)).json()["actions"]["delete"]["allowed"]
    assert (await rin.delete(address)).status_code == 204
    for job in (train, export):
        assert (await rin.get(f"/v1/jobs/{job}")).json()["detail"].startswith(f"job {job} was deleted at ")
    gone = await rin.get(address)
    assert gone.status_code == 404
    assert gone.json()["detail"].startswith(f"pipeline {pipeline['id']} was deleted at ")
    assert (await rin.delete(address)).status_code == 204, "it is so already"
    assert (await rin.delete(f"/v1/pipelines/{pipeline['id'][:-1]}0")).status_code == 404
    assert blobs(tmp_path) == []


async def test_steps_that_all_succeeded_are_deleted_in_any_order(play: Play, rin: httpx.AsyncClient) -> None:
    ((train,), (eval_,)) = await play.steps(1, "train", "eval")
    for job in (train, eval_):
        await play.tell([job], *RUNS, "exits 0", *LET_GO)
    for job in (train, eval_):
        await deleted(rin, job)


async def test_a_submit_that_is_not_yet_committed_keeps_its_snapshot(api: RunningApi, play: Play) -> None:
    job, digest = await ended(play, b"needed")
    async with api.api.store.transaction() as tx:
        assert await tx.kept_snapshots("acme", [digest]) == {digest}
        await tx.tx.execute(ANOTHER, job, new_id("j", api.service.clock.now()))
        deleting = asyncio.create_task(play.client.delete(f"/v1/jobs/{job}"))
        await waiting(api, deleting)
        assert not deleting.done(), "it waits for who may need the same"
    assert (await deleting).status_code == 204
    assert await is_known(play.client, digest)


async def test_a_submit_that_comes_while_its_snapshot_is_deleted_says_to_send_it_again(
    api: RunningApi, play: Play
) -> None:
    job, digest = await ended(play, b"going")
    async with api.api.store.transaction() as tx:
        assert await forgotten_in(tx, api, job) is not None
        body = {"spec": {"command": ["true"], "snapshot": digest}}
        submitting = asyncio.create_task(play.client.post("/v1/jobs", json=body))
        await waiting(api, submitting)
    answer = await submitting
    assert answer.status_code == 422
    assert "send it first with PUT /v1/snapshots/DIGEST" in answer.json()["detail"]


async def test_of_two_that_delete_the_last_two_jobs_one_removes_the_snapshot(api: RunningApi, play: Play) -> None:
    one, digest = await ended(play, b"both")
    (two,) = await play.submitted(1, snapshot=digest)
    await play.client.post(f"/v1/jobs/{two}/stop")
    async with api.api.store.transaction() as tx:
        assert await forgotten_in(tx, api, one) is None, "the other one needs it still"
        deleting = asyncio.create_task(play.client.delete(f"/v1/jobs/{two}"))
        await waiting(api, deleting)
    assert (await deleting).status_code == 204
    assert not await is_known(play.client, digest)


async def test_who_is_late_with_removing_a_blob_leaves_what_was_sent_since(
    api: RunningApi, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, digest = await ended(play, b"again")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def late(*given: Any) -> None:
        begun.set()
        await go_on.wait()
        await obstore.delete_async(*given)

    monkeypatch.setattr(stored, "delete_async", late)
    deleting = asyncio.create_task(play.client.delete(f"/v1/jobs/{job}"))
    await begun.wait()
    assert await play.upload(b"again") == digest
    await play.submitted(1, snapshot=digest)
    go_on.set()
    assert (await deleting).status_code == 204
    assert [file.read_bytes() for file in blobs(tmp_path)] == [b"again"]
    assert await is_known(play.client, digest)


async def test_a_sweep_removes_what_a_killed_process_has_left(
    api: RunningApi, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: Any) -> None:
        raise ConnectionError("the process is gone")

    job, _ = await ended(play, b"left")
    with monkeypatch.context() as patched:
        patched.setattr(stored.Stored, "_removed", killed)
        await deleted(play.client, job)
        assert [file.read_bytes() for file in blobs(tmp_path)] == [b"left"]
    await api.service.db.execute("UPDATE removals SET due_at = now()")  # its patience is over
    another = stored.Stored(api.service.db, api.api.blobs, api.service.log)

    async def swept() -> bool:
        await another.remove()
        return not await api.service.db.fetchval("SELECT count(*) FROM removals")

    await eventually(swept, "the list of removals to be done, by this replica or by the other")
    assert blobs(tmp_path) == []


async def test_an_upload_that_was_given_up_is_not_remembered_any_more(api: RunningApi, play: Play) -> None:
    digest = "sha256:" + "a" * 64
    upload = await api.api.stored.begin("acme", digest)
    assert upload is not None
    await api.api.stored.remove([upload.whole])
    assert not await api.api.stored.remember("acme", digest, 3, upload)
    assert not await is_known(play.client, digest)


async def test_a_snapshot_whose_blob_is_gone_is_asked_for_again(play: Play, tmp_path: Path) -> None:
    """A restore to before its deletion has brought back the row alone."""
    digest = await play.upload(b"restored")
    (blob,) = blobs(tmp_path)
    blob.unlink()
    assert not await is_known(play.client, digest)
    assert await play.upload(b"restored") == digest
    assert await is_known(play.client, digest)
    (again,) = blobs(tmp_path)
    assert (again.parent, again.read_bytes()) == (blob.parent, b"restored")


async def test_of_two_uploads_of_the_same_one_stays(api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"tw"
        await began.wait()
        yield b"ice"

    digest = f"sha256:{hashlib.sha256(b'twice').hexdigest()}"
    slow = asyncio.create_task(rin.put(f"/v1/snapshots/{digest}", content=slowly()))
    await eventually(lambda: api.service.db.fetchval("SELECT count(*) FROM removals"), "the upload to begin")
    assert (await rin.put(f"/v1/snapshots/{digest}", content=b"twice")).status_code == 201
    began.set()
    assert (await slow).status_code == 201

    async def swept() -> bool:
        await api.api.stored.remove()
        return len(blobs(tmp_path)) == 1

    await eventually(swept, "the second upload to be removed")
    assert orjson.loads((await rin.put(f"/v1/snapshots/{digest}", content=b"twice")).content)["stored"] is False
