"""Facts that are bad, early, late or repeated, and the positions that the log gives."""

import asyncio
from datetime import UTC, datetime

import asyncpg
import httpx
import orjson
import pytest

from services.api import facts as facts_module
from services.api import orphans as orphans_module
from services.api.domain import read_fact
from services.api.facts import Facts
from shared.contracts.facts import encode_fact
from shared.contracts.ids import new_id
from shared.lifecycle.facts import Admitted, Version
from tests.integration.api.conftest import RunningApi, eventually

GATE = {"name": "capacity", "reason": "full", "scope": "cluster local", "lifted_by": "time"}


async def _dead_letters(api: RunningApi) -> list[dict[str, object]]:
    letters: list[dict[str, object]] = orjson.loads(await api.service.dead_letters.ls(b"{}"))
    return letters


async def test_parks_a_bad_fact_alone_and_applies_its_neighbours(api: RunningApi, rin: httpx.AsyncClient) -> None:
    jobs = [(await api.submit(rin))["id"] for _ in range(5)]
    for job in jobs[:3]:
        await api.report("admitted", job, admission=1)
    await api.send("gatekeeper", "facts.v1.gatekeeper.admitted", b'{"kind": "admitted", "job": 7}')
    for job in jobs[3:]:
        await api.report("admitted", job, admission=1)
    for job in jobs:
        await api.becomes(rin, job, "SUBMITTED")
    (letter,) = await eventually(lambda: _dead_letters(api), "the bad fact to be parked")
    assert "no fact that may come on facts.v1.gatekeeper.admitted" in str(letter["error"])


async def test_refuses_a_fact_that_names_another_tenant(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    await api.report("admitted", job, tenant="umbra", admission=1)
    (letter,) = await eventually(lambda: _dead_letters(api), "the foreign fact to be parked")
    assert "names tenant 'umbra'" in str(letter["error"])
    assert (await rin.get(f"/v1/jobs/{job}")).json()["state"] == "QUEUED"


async def test_merges_facts_of_one_batch_into_one_event(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    view = (await rin.get(f"/v1/jobs/{job}")).json()
    base = {"job": job, "tenant": "acme", "attempt": 1, "source": "t", "at": view["submitted_at"]}
    bodies = [
        {**base, "kind": "held", "version": {"n": 1}, "gates": [GATE]},
        {**base, "kind": "admitted", "version": {"n": 2}, "admission": 1},
        {**base, "kind": "admitted", "version": {"n": 2}, "admission": 1},
    ]
    reported = [read_fact(f"facts.v1.gatekeeper.{body['kind']}", orjson.dumps(body)) for body in bodies]
    await Facts(api.service, api.api.store).take(reported)
    events = (await rin.get(f"/v1/jobs/{job}/events")).json()["items"]
    assert [event["type"] for event in events] == ["queued", "submitted"]
    logged = (await api.api.reads.inputs(job))[-1][1]
    assert [one["kind"] for one in logged] == ["held", "admitted"]


async def test_a_redelivered_fact_changes_nothing(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    fact = await api.report("admitted", job, admission=1)
    seq = (await api.becomes(rin, job, "SUBMITTED"))["seq"]
    wire = encode_fact("gatekeeper", fact)
    await Facts(api.service, api.api.store).take([read_fact(wire.subject, wire.body)])
    assert (await rin.get(f"/v1/jobs/{job}")).json()["seq"] == seq


async def test_stores_a_fact_whose_text_holds_what_the_database_cannot(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    await api.report("held", job, gates=[GATE | {"reason": "a\0b and \\u0000"}])

    async def reason() -> str | None:
        gate = (await rin.get(f"/v1/jobs/{job}")).json()["gate"]
        return gate and str(gate["reason"])

    assert await eventually(reason, "the gate to be shown") == "a\ufffdb and \\u0000"


def _early(job: str, n: int) -> Admitted:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Admitted(job=job, tenant="acme", attempt=1, version=Version(n=n), at=at, source="t", admission=n)


async def _take(api: RunningApi, fact: Admitted) -> None:
    wire = encode_fact("gatekeeper", fact)
    await Facts(api.service, api.api.store).take([read_fact(wire.subject, wire.body)])


async def test_keeps_facts_of_unknown_jobs_and_applies_them_when_the_row_appears(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    known = (await api.submit(rin))["id"]
    connection = await asyncpg.connect(api.database.superuser_url)
    try:
        row = await connection.fetchrow("DELETE FROM api.jobs WHERE id = $1 RETURNING *", known)
        assert row is not None
        await _take(api, _early(known, 2))
        await _take(api, _early(known, 1))
        assert await connection.fetch("SELECT job, n FROM api.orphans") == [(known, 2)]
        columns = ", ".join(row.keys())
        places = ", ".join(f"${place}" for place in range(1, len(row) + 1))
        await connection.execute(f"INSERT INTO api.jobs ({columns}) VALUES ({places})", *row.values())
    finally:
        await connection.close()
    await Facts(api.service, api.api.store).sweep()
    await api.becomes(rin, known, "SUBMITTED")
    assert await api.service.db.fetchval("SELECT count(*) FROM orphans") == 0


async def test_keeps_no_more_orphans_than_the_bound(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "ORPHANS_KEPT", 3)
    for number in range(6):
        await _take(api, _early(new_id("j", datetime.now(UTC)), number))
    assert await api.service.db.fetchval("SELECT array_agg(n ORDER BY n) FROM orphans") == [3, 4, 5]


async def test_lists_orphans_to_an_admin(
    api: RunningApi, ada: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans_module, "LISTED", 2)
    jobs = [new_id("j", datetime.now(UTC)) for _ in range(3)]
    for number, job in enumerate(jobs):
        await _take(api, _early(job, number))
    listed = (await ada.get("/v1/orphans")).json()
    assert ([item["job"] for item in listed["items"]], listed["total"]) == (jobs[:0:-1], 3)
    first = {key: value for key, value in listed["items"][0].items() if key not in ("job", "kept_at")}
    assert first == {"tenant": "acme", "attempt": 1, "service": "gatekeeper", "kind": "admitted", "epoch": 1, "n": 2}


async def test_drops_facts_of_deleted_jobs(api: RunningApi) -> None:
    job = new_id("j", datetime.now(UTC))
    await api.service.db.execute("INSERT INTO tombstones (job, tenant) VALUES ($1, 'acme')", job)
    await _take(api, _early(job, 1))
    assert await api.service.db.fetchval("SELECT count(*) FROM orphans") == 0


async def test_positions_have_no_gap_and_commit_in_their_order(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    """While many transactions commit side by side, a reader that goes on from the last position misses nothing."""
    seen: list[int] = []
    done = asyncio.Event()

    async def read() -> None:
        while True:
            last = done.is_set()
            rows = await api.api.feed.read("acme", seen[-1] if seen else 0)
            seen.extend(row.position for row in rows)
            if last and not rows:
                return

    async def submit(client: httpx.AsyncClient) -> None:
        for _ in range(10):
            await api.submit(client)

    reader = asyncio.create_task(read())
    await asyncio.gather(*(submit(client) for client in (rin, kay, rin, kay, rin, rin)))
    done.set()
    await reader
    assert seen == list(range(1, 41))
