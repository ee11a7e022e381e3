"""Every open job is told again as `reset`: a new version of its record and nothing else."""

from datetime import UTC, datetime

import asyncpg
import httpx
import orjson
import pytest

from services.api import resets as resets_module
from services.api.domain import replay, take_command
from services.api.newest import Newest
from services.api.resets import Resets
from shared.contracts.events import decode_event
from shared.lifecycle.inputs import Hold
from shared.runtime.errors import Retryable
from tests.integration.api.conftest import RunningApi, eventually
from tests.integration.api.test_streams import reading


def _resets(api: RunningApi) -> Resets:
    return Resets(api.service.db, api.api.store, api.service.clock, api.lease)


async def _all_told(api: RunningApi) -> None:
    async def none_pending() -> bool:
        return not await _resets(api).pending()

    await eventually(none_pending, "every open job to be told again")


async def _restored(api: RunningApi, backup_at: datetime) -> None:
    """What `infra.postgres.restored` does to api's slice, under a process that keeps running."""
    connection = await asyncpg.connect(api.database.superuser_url)
    try:
        await connection.execute("UPDATE api.standing SET epoch = 2, restoring = true, backup_at = $1", backup_at)
    finally:
        await connection.close()


async def test_tells_every_open_job_again_in_every_stream(api: RunningApi, rin: httpx.AsyncClient) -> None:
    ended, waiting, held = [(await api.submit(rin))["id"] for _ in range(3)]
    await rin.post(f"/v1/jobs/{ended}/stop")
    await rin.post(f"/v1/jobs/{held}/hold")
    before = {job: (await rin.get(f"/v1/jobs/{job}")).json() for job in (ended, waiting, held)}
    async with (
        reading(rin, "/v1/events", "5") as tenants,
        reading(rin, f"/v1/jobs/{held}/events", "1-2") as jobs,
    ):
        await _resets(api).ask()
        told = [(event.event, orjson.loads(event.data)["job"]["id"]) for event in await tenants.has(2)]
        assert told == [("reset", waiting), ("reset", held)]
        assert [(event.event, event.id) for event in await jobs.has(1)] == [("reset", "1-3")]
    for job, view in before.items():
        now = (await rin.get(f"/v1/jobs/{job}")).json()
        assert now["seq"] == view["seq"] + (job != ended)
        assert now | {"seq": 0} == view | {"seq": 0}
    await _all_told(api)


async def test_tells_each_job_once_over_several_pages(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets_module, "PAGE", 2)
    jobs = [(await api.submit(rin))["id"] for _ in range(5)]
    await api.leads()
    await _resets(api).ask()
    later = (await api.submit(rin))["id"]
    while await _resets(api).pending():
        await _resets(api).page()
    told = await api.service.db.fetch("SELECT job FROM events WHERE type = 'reset' ORDER BY id")
    assert [row["job"] for row in told] == jobs
    assert (await rin.get(f"/v1/jobs/{later}")).json()["seq"] == 1, "who came after it has heard nothing old"


async def test_after_a_restore_new_versions_are_of_its_epoch(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job, other = [(await api.submit(rin))["id"] for _ in range(2)]
    await _restored(api, datetime(2026, 11, 30, 12, tzinfo=UTC))
    held = (await rin.post(f"/v1/jobs/{job}/hold")).json()
    assert (held["epoch"], held["seq"]) == (2, 2)
    again = (await rin.post(f"/v1/jobs/{other}/release")).json()
    assert (again["epoch"], again["seq"]) == (1, 1), "nothing changed, so it is the version that there is"
    await _resets(api).ask()
    await _all_told(api)
    for id_ in (job, other):
        log = await api.api.reads.inputs(id_)
        found = await api.api.reads.job("acme", id_)
        assert found is not None
        assert replay(decode_event(log[0][0]).job, [entry[1:] for entry in log[1:]]) == found.record
    view = (await rin.get(f"/v1/jobs/{other}")).json()
    assert (view["epoch"], view["seq"]) == (2, 2)
    assert "restored from a backup of 2026-11-30 12:00:00 UTC" in view["warnings"][-1]


async def test_a_process_from_before_a_restore_makes_no_jobs(api: RunningApi, rin: httpx.AsyncClient) -> None:
    await _restored(api, datetime(2026, 11, 30, 12, tzinfo=UTC))
    refused = await rin.post("/v1/jobs", json={"spec": {"command": ["true"]}})
    assert refused.status_code == 503
    assert await api.service.db.fetchval("SELECT count(*) FROM jobs") == 0


async def test_who_asks_about_a_job_that_ended_hears_of_it_in_the_new_epoch(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    """A service may have heard a later version of it in the lost time, whose epoch is the old one."""
    job = (await api.submit(rin))["id"]
    stopped = (await rin.post(f"/v1/jobs/{job}/stop")).json()
    await _restored(api, datetime(2026, 11, 30, 12, tzinfo=UTC))
    newest = Newest(api.service.db, _resets(api))
    for _ in range(2):
        (body,) = orjson.loads(await newest.asked(orjson.dumps({"jobs": [job]})))["events"]
        told = decode_event(body.encode())
        assert (told.type, told.job.epoch, told.job.seq) == ("reset", 2, stopped["seq"] + 1)
        assert told.job.state == "STOPPED"


async def test_a_version_of_an_ended_epoch_is_not_written(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    found = await api.api.reads.job("acme", job)
    assert found is not None
    await _restored(api, datetime(2026, 11, 30, 12, tzinfo=UTC))
    at = datetime.now(UTC)
    late, _ = take_command(found.record, Hold(actor="rin", at=at, reason="late"), at)
    assert late is not None
    with pytest.raises(Retryable):
        async with api.api.store.transaction() as tx:
            await tx.apply([late])
    assert (await rin.get(f"/v1/jobs/{job}")).json()["seq"] == 1
