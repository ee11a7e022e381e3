"""Each NATS user and each database role reaches its own, and is denied what belongs to the others."""

import itertools
import re

import asyncpg
import nats
import pytest
from nats.aio.client import Client

from infra.postgres.provision import owner_role
from shared.contracts.subjects import FACT_KINDS, SERVICES, fact_subject
from shared.runtime.topology import CONSUMERS
from tests.integration.runtime.stores import Stores, eventually

OWN_CONSUMERS = {service: {service} for service in SERVICES} | {"gatekeeper": {"gatekeeper", "gatekeeper_clusters"}}

PUBLISHERS: dict[str, set[str]] = {
    "jobs.v1.acme.queued": {"api"},
    "clusters.v1.local.capacity": {"watcher"},
    "usage.v1.acme.segment": {"metering"},
    "logs.v1.acme": {"watcher"},
    "facts.v1.api.admitted": set(),
    "facts.v1.gatekeeper.nonsense": set(),
    **{fact_subject(service, kind): {service} for service, kinds in FACT_KINDS.items() for kind in kinds},
    **{
        f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream}.{name}": {s for s in SERVICES if name in OWN_CONSUMERS[s]}
        for name, consumer in CONSUMERS.items()
    },
    **{
        f"$JS.ACK.{consumer.stream}.{name}.1.1.1.1.0": {s for s in SERVICES if name in OWN_CONSUMERS[s]}
        for name, consumer in CONSUMERS.items()
    },
    **{
        f"$JS.API.CONSUMER.INFO.{consumer.stream}.{name}": {"api", "gatekeeper"} if name == "gatekeeper" else {"api"}
        for name, consumer in CONSUMERS.items()
    },
    **{
        f"$JS.API.DIRECT.GET.FACTS.{fact_subject(service, kind)}": {service}
        for service, kinds in FACT_KINDS.items()
        for kind in kinds
    },
    **{f"nudge.v1.{service}": {service} for service in SERVICES},
    "$JS.API.DIRECT.GET.FACTS": set(),
    "$JS.API.DIRECT.GET.USAGE": {"metering"},
    "$JS.API.STREAM.INFO.JOBS": {"api"},
    "$JS.API.STREAM.INFO.FACTS": set(FACT_KINDS),
    "$JS.API.STREAM.MSG.GET.JOBS": set(),
    "$JS.API.DIRECT.GET.JOBS": set(),
    "$JS.API.STREAM.CREATE.OTHER": set(),
    "$JS.API.STREAM.PURGE.JOBS": set(),
    "$JS.API.STREAM.DELETE.JOBS": set(),
    "$JS.API.CONSUMER.CREATE.JOBS.spy": set(),
    "$JS.API.CONSUMER.CREATE.FACTS": set(),
    "$JS.API.CONSUMER.DELETE.JOBS.gatekeeper": set(),
    "rpc.v1.stager.specs": set(SERVICES),
    **{f"_INBOX_{service}.abc": set() for service in SERVICES},
    "anything.else": set(),
}
"""Who may publish where; everybody else is denied."""

LISTENERS: dict[str, set[str]] = {
    ">": set(),
    "jobs.v1.>": set(),
    "facts.v1.>": set(),
    "usage.v1.acme.*": set(),
    "clusters.v1.>": set(),
    "rpc.v1.>": set(),
    "logs.v1.acme": {"api"},
    "_INBOX.>": set(),
    "$JS.EVENT.>": set(),
    **{f"_INBOX_{service}.>": {service} for service in SERVICES},
    **{f"rpc.v1.{service}.specs": {service} for service in SERVICES},
    **{f"nudge.v1.{service}": {service} for service in SERVICES},
    "nudge.v1.*": set(),
}
"""Who may listen where."""


SENTINEL = "nobody.may"


class Asker:
    """One user's connection, which knows what the server denied it."""

    def __init__(self) -> None:
        self.denied: list[str] = []

    async def remember(self, error: Exception) -> None:
        """nats-py gives the complaint in lower case."""
        self.denied += re.findall(r'permissions violation for \w+ to "([^"]+)"', str(error))

    async def is_denied(self, connection: Client, subject: str) -> bool:
        """Whether the server complained about `subject` before it complained about the sentinel, sent after it."""
        await connection.publish(SENTINEL, b"")

        async def complained() -> bool:
            return SENTINEL in self.denied

        await eventually(complained, "the server to deny the sentinel")
        denied, self.denied = self.denied, []
        return subject.lower() in denied


@pytest.mark.parametrize("service", SERVICES)
async def test_a_nats_user_publishes_and_hears_its_own_subjects_only(stores: Stores, service: str) -> None:
    asker = Asker()
    connection = await nats.connect(stores.nats.url, error_cb=asker.remember, **stores.nats.login(service))
    wrong: list[str] = []
    try:
        for subject, publishers in PUBLISHERS.items():
            await connection.publish(subject, b"{}")
            if await asker.is_denied(connection, subject) is (service in publishers):
                wrong.append(f"publish {subject}")
        for subject, listeners in LISTENERS.items():
            subscription = await connection.subscribe(subject)
            if await asker.is_denied(connection, subject) is (service in listeners):
                wrong.append(f"subscribe {subject}")
            await subscription.unsubscribe()
    finally:
        await connection.close()
    assert wrong == []


async def test_nobody_gets_in_without_a_login(stores: Stores) -> None:
    for login in ({}, {"user": "api", "password": "guess"}, {"user": "root", "password": ""}):
        with pytest.raises(nats.errors.Error, match=r"[Aa]uthorization"):
            await nats.connect(stores.nats.url, allow_reconnect=False, **login)


@pytest.mark.parametrize(("service", "other"), list(itertools.permutations(SERVICES, 2)))
async def test_a_database_role_is_denied_on_every_other_schema(stores: Stores, service: str, other: str) -> None:
    for role in (service, owner_role(service)):
        connection = await asyncpg.connect(stores.dsn(role))
        try:
            for statement in (
                f"SELECT * FROM {other}.outbox",
                f"DELETE FROM {other}.dead_letters",
                f"INSERT INTO {other}.outbox (key, subject, msg_id, headers, body) VALUES ('k', 's', 'm', '{{}}', '')",
                f"CREATE TABLE {other}.mine ()",
                f"SET ROLE {owner_role(other)}",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
        finally:
            await connection.close()


@pytest.mark.parametrize("service", SERVICES)
async def test_a_login_role_changes_rows_and_not_the_schema(stores: Stores, service: str) -> None:
    connection = await asyncpg.connect(stores.dsn(service))
    try:
        assert await connection.fetchval("SELECT current_schema()") == service
        assert await connection.fetchval("SHOW statement_timeout") == "20s"
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "10s"
        await connection.execute("DELETE FROM outbox")
        for statement in (
            "CREATE TABLE mine ()",
            "CREATE TEMPORARY TABLE mine ()",
            "ALTER TABLE outbox ADD COLUMN more int",
            "DROP TABLE outbox",
            "TRUNCATE outbox",
            "CREATE SCHEMA mine",
            "CREATE TABLE public.mine ()",
            f"SET ROLE {owner_role(service)}",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()
    for database in ("postgres", "template1"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asyncpg.connect(stores.dsn(service), database=database)
