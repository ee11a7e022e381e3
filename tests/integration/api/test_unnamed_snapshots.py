"""Snapshots that were sent and that no job has named: they go after a day, and none that somebody is about to name."""

import asyncio
from pathlib import Path

import httpx
import pytest

from services.api.stored import forget_unnamed
from tests.integration.api.conftest import RunningApi, eventually
from tests.integration.api.situations import Play
from tests.integration.api.test_deleting import blobs, is_known, waiting

DAYS_PASS = "UPDATE snapshots SET stored_at = stored_at - interval '2 days'"
KNOWN = "SELECT digest FROM snapshots"
SUBMITS = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND datname = current_database()
"""


@pytest.fixture
def play(api: RunningApi, rin: httpx.AsyncClient) -> Play:
    return Play(api, rin)


async def known(api: RunningApi) -> set[str]:
    return {row["digest"] for row in await api.service.db.fetch(KNOWN)}


async def test_they_go_after_a_day_and_those_that_a_job_names_stay(api: RunningApi, play: Play, tmp_path: Path) -> None:
    named, unnamed = await play.upload(b"named"), await play.upload(b"unnamed")
    (job,) = await play.submitted(1, snapshot=named)
    await play.client.post(f"/v1/jobs/{job}/stop")
    await api.service.db.execute(DAYS_PASS)
    new = await play.upload(b"new")
    await api.api.stored.forget()
    assert unnamed not in await known(api)
    assert await known(api) == {named, new}

    async def swept() -> bool:
        await api.api.stored.remove()
        return {file.read_bytes() for file in blobs(tmp_path)} == {b"named", b"new"}

    await eventually(swept, "the blob to be removed, by this sweep or by the service's own")
    assert await play.upload(b"unnamed") == unnamed, "sent again it is there again"
    assert await is_known(play.client, unnamed)


@pytest.mark.parametrize("how", ["HEAD", "PUT"])
async def test_whoever_asks_for_one_has_it_for_a_day(api: RunningApi, play: Play, how: str) -> None:
    digest = await play.upload(b"asked for")
    await api.service.db.execute(DAYS_PASS)
    answer = await play.client.request(how, f"/v1/snapshots/{digest}", content=None if how == "HEAD" else b"asked for")
    assert answer.status_code == 200
    assert await api.api.stored.forget() == 0
    await play.submitted(1, snapshot=digest)


async def test_a_submit_that_is_not_yet_committed_keeps_the_one_it_names(api: RunningApi, play: Play) -> None:
    await play.submitted(1)  # the tenant is there
    digest = await play.upload(b"needed")
    await api.service.db.execute(DAYS_PASS)
    async with api.service.db.transaction() as tx:
        await tx.execute("SELECT FROM tenants FOR UPDATE")  # what a submit takes last
        submitting = asyncio.create_task(play.submitted(1, snapshot=digest))
        await eventually(lambda: api.service.db.fetchval(SUBMITS), "the submit to have looked for its snapshot")
        forgetting = asyncio.create_task(api.api.stored.forget())
        await waiting(api, forgetting)
        assert not forgetting.done(), "it waits for who may need the same"
    await submitting
    assert await forgetting == 0
    assert await known(api) == {digest}


async def test_a_submit_that_comes_while_it_is_forgotten_says_to_send_it_again(api: RunningApi, play: Play) -> None:
    digest = await play.upload(b"going")
    await api.service.db.execute(DAYS_PASS)
    async with api.service.db.transaction() as tx:
        assert await forget_unnamed(tx, "acme") == 1
        body = {"spec": {"command": ["true"], "snapshot": digest}}
        submitting = asyncio.create_task(play.client.post("/v1/jobs", json=body))
        await waiting(api, submitting)
    answer = await submitting
    assert answer.status_code == 422
    assert "send it first with PUT /v1/snapshots/DIGEST" in answer.json()["detail"]
