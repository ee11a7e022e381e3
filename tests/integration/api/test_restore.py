"""The database is restored from a backup while jobs run: the epoch rises, nothing goes on before it is in step, and
what others saw in the lost time is adopted."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest
from nats.js import JetStreamContext

from infra.postgres.provision import roles
from infra.postgres.restored import SKIPPED, NotNow, begin_epoch, moment, restored
from services.api.resets import Resets
from services.api.restore import Restore
from shared.lifecycle.facts import SegmentKey
from tests.databases import EVERY_SERVICE, FreshDatabase, ServiceDatabase
from tests.integration.api.conftest import (
    ACME_ADMIN,
    ACME_USER,
    Answering,
    Reply,
    RunningApi,
    answering_on,
    eventually,
    running,
    settings_for,
)
from tests.servers import NatsServer

SEEN: dict[str, Any] = {
    "segment": SegmentKey(submission="s1", created_at=datetime(2026, 11, 30, 9, tzinfo=UTC)),
    "raw_state": "running",
    "started_at": datetime(2026, 11, 30, 9, 1, tzinfo=UTC),
}


@pytest.fixture
async def database(service_database: FreshDatabase) -> ServiceDatabase:
    """All slices."""
    return await service_database("api", migrated=EVERY_SERVICE)


@asynccontextmanager
async def _backup(database: ServiceDatabase) -> AsyncIterator[ServiceDatabase]:
    """A copy of the database as it is now, nobody being connected."""
    copy = replace(database, name=f"{database.name}_backup")
    connection = await asyncpg.connect(database.server.superuser_url())
    try:
        await connection.execute(f"CREATE DATABASE {copy.name} TEMPLATE {database.name}")
        await connection.execute(f"GRANT CONNECT ON DATABASE {copy.name} TO {', '.join(roles())}")
        yield copy
        await connection.execute(f"DROP DATABASE {copy.name} WITH (FORCE)")
    finally:
        await connection.close()


async def test_what_ran_in_the_lost_time_is_adopted_before_anything_goes_on(
    database: ServiceDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with running(settings_for(database, nats_server, tmp_path), database, nats_server) as api:
        rin = api.client(ACME_USER)
        waiting, runs, retried = [(await api.submit(rin))["id"] for _ in range(3)]
        await rin.post(f"/v1/jobs/{retried}/stop")
    async with _backup(database) as copy:
        backup_at = datetime.now(UTC)
        async with running(settings_for(database, nats_server, tmp_path), database, nats_server) as api:
            rin = api.client(ACME_USER)
            unknown = (await api.submit(rin))["id"]
            for job in (runs, unknown):
                await api.report("seen_running", job, **SEEN)
                await api.becomes(rin, job, "RUNNING")
            await api.report("seen_running", retried, attempt=2, **SEEN)
            await api.becomes(rin, retried, "RUNNING")
            last = await api.service.db.fetchval("SELECT max(position) FROM events")
        said = await restored(backup_at, _environ(copy, nats_server))
        assert said[0].startswith("epoch 2 begins")
        assert said[1].startswith("api reads the facts again that came after")
        async with running(settings_for(copy, nats_server, tmp_path), copy, nats_server) as api:
            await _comes_into_step(api, waiting, runs, retried, unknown, last)


async def _comes_into_step(api: RunningApi, waiting: str, runs: str, retried: str, unknown: str, last: int) -> None:
    rin, ada = api.client(ACME_USER), api.client(ACME_ADMIN)
    during = await api.submit(rin)
    assert (during["epoch"], during["state"]) == (2, "QUEUED")
    view = await api.becomes(rin, runs, "RUNNING")
    assert (view["epoch"], view["attempts"][-1]["admission"]) == (2, 0)
    assert "the database was restored from a backup of" in view["warnings"][-1]
    view = await api.becomes(rin, retried, "RUNNING")
    assert (view["epoch"], view["attempt"]) == (2, 2)

    async def told_again() -> bool:
        return bool((await rin.get(f"/v1/jobs/{waiting}")).json()["epoch"] == 2)

    await eventually(told_again, "the waiting job to be told again")
    orphans = (await ada.get("/v1/orphans")).json()["items"]
    assert [(one["job"], one["kind"]) for one in orphans] == [(unknown, "seen_running")]
    positions = await api.service.db.fetch("SELECT position FROM events WHERE epoch = 2")
    assert min(row["position"] for row in positions) > max(last, SKIPPED)
    assert api.service.standing.restoring
    async with answering_on(api) as answering:
        await answering("watcher", "standing", _standing(epoch=2, restoring=False, unsent=0))

        async def in_step() -> bool:
            return not api.service.standing.restoring

        await eventually(in_step, "the api to be in step")


def _standing(**standing: object) -> Reply:
    return lambda _: orjson.dumps(standing)


def _environ(database: ServiceDatabase, nats_server: NatsServer) -> dict[str, str]:
    return {
        "TIDEGATE_DATABASE_URL": database.superuser_url,
        "TIDEGATE_NATS_URL": nats_server.url,
        "TIDEGATE_NATS_USER": "admin",
        "TIDEGATE_NATS_PASSWORD": nats_server.password("admin"),
    }


async def test_is_in_step_only_when_all_that_runs_is_in_the_records(api: RunningApi, answering: Answering) -> None:
    lag = 1
    says = {"epoch": 1, "restoring": False, "unsent": 0}

    async def lag_of(consumer: str) -> int:
        return {"api": lag}[consumer]

    resets = Resets(api.service.db, api.api.store, api.service.clock, api.lease)
    restore = Restore(api.service, resets, lag_of, api.lease)
    await resets.ask()
    await api.service.db.execute("UPDATE resets SET due = now() + interval '1 hour'")
    assert await restore.waits_for(2) == "every open job to be told again"
    await api.service.db.execute("DELETE FROM resets")
    assert await restore.waits_for(2) == "the watcher, which does not answer"
    await answering("watcher", "standing", lambda _: orjson.dumps(says))
    assert await restore.waits_for(2) == "the watcher to tell all that runs"
    says |= {"epoch": 2, "restoring": True}
    assert await restore.waits_for(2) == "the watcher to tell all that runs"
    says |= {"restoring": False, "unsent": 3}
    assert await restore.waits_for(2) == "the watcher to tell all that runs"
    says |= {"unsent": 0}
    assert await restore.waits_for(2) == "the facts of the lost time"
    lag = 0
    assert await restore.waits_for(2) is None


async def test_raises_the_epoch_of_every_service_and_gives_no_number_twice(database: ServiceDatabase) -> None:
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    connection = await asyncpg.connect(database.superuser_url)
    try:
        await connection.execute("INSERT INTO api.tenants (name, position) VALUES ('acme', 7)")
        await connection.execute("UPDATE metering.standing SET epoch = 4")
        before = await connection.fetchval("SELECT nextval('gatekeeper.fact_versions')")
        assert await begin_epoch(database.superuser_url, at) == 5
        for service in EVERY_SERVICE:
            row = await connection.fetchrow(f"SELECT epoch, restoring, backup_at FROM {service}.standing")
            assert tuple(row) == (5, True, at), service
        assert await connection.fetchval("SELECT position FROM api.tenants") == 7 + SKIPPED
        assert await connection.fetchval("SELECT nextval('gatekeeper.fact_versions')") == before + SKIPPED + 1
        assert await connection.fetchval("SELECT nextval('watcher.fact_versions')") > SKIPPED
        assert await connection.fetchval("SELECT count(*) FROM api.resets") == 1
    finally:
        await connection.close()


async def test_changes_nothing_while_a_service_is_connected(api: RunningApi) -> None:
    with pytest.raises(NotNow, match="these services are connected: api"):
        await begin_epoch(api.database.superuser_url, datetime.now(UTC))
    assert api.service.standing.epoch == 1


async def test_changes_nothing_before_the_migrations(service_database: FreshDatabase) -> None:
    database = await service_database("api")
    with pytest.raises(NotNow, match="run the migrations of all services first"):
        await begin_epoch(database.superuser_url, datetime.now(UTC))


async def test_goes_on_without_a_broker(database: ServiceDatabase) -> None:
    environ = {"TIDEGATE_DATABASE_URL": database.superuser_url}
    assert (await restored(datetime.now(UTC), environ))[1].startswith("no login at NATS was given")
    away = {"TIDEGATE_NATS_URL": "nats://127.0.0.1:9", "TIDEGATE_NATS_USER": "admin", "TIDEGATE_NATS_PASSWORD": "x"}
    said = await restored(datetime.now(UTC), environ | away)
    assert said[0].startswith("epoch 3 begins")
    assert said[1].startswith("facts of the lost time are not read again: NATS says")


@pytest.mark.parametrize(
    ("text", "why"),
    [("yesterday", "is no instant"), ("2026-11-30T12:00:00", "has no zone"), ("2999-01-01T00:00:00Z", "in the future")],
)
def test_the_time_of_a_backup_is_an_instant_of_the_past(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        moment(text)
    assert moment("2026-11-30T01:00:00+01:00") == datetime(2026, 11, 30, tzinfo=UTC)
