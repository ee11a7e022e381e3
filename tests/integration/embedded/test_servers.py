"""The embedded servers start, keep what they acknowledged, and let nobody in without a password."""

import asyncpg
import nats
import pytest

from tests.databases import FreshDatabase
from tests.servers import NatsServer, PostgresServer


async def test_postgres_keeps_committed_rows_over_a_kill(postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(postgres.superuser_url())
    await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    postgres.kill()
    postgres.start()
    connection = await asyncpg.connect(postgres.superuser_url())
    assert await connection.fetchval("SELECT one FROM kept") == 1
    await connection.execute("DROP TABLE kept")
    await connection.close()


async def test_postgres_listens_on_no_port(postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(postgres.superuser_url())
    assert await connection.fetchval("SHOW listen_addresses") == ""
    await connection.close()


async def test_postgres_refuses_a_wrong_password(postgres: PostgresServer) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.postgres.url("postgres", "wrong", "postgres"))


async def test_nats_refuses_who_has_no_password(nats_url: str) -> None:
    with pytest.raises(nats.errors.Error):
        await nats.connect(nats_url, allow_reconnect=False)


async def test_nats_keeps_acknowledged_messages_over_a_kill(own_nats_server: NatsServer) -> None:
    connection = await nats.connect(own_nats_server.url, **own_nats_server.login("admin"))
    await connection.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await connection.jetstream().publish("kept", b"one")
    await connection.close()
    own_nats_server.kill()
    own_nats_server.start()
    connection = await nats.connect(own_nats_server.url, **own_nats_server.login("admin"))
    assert (await connection.jetstream().get_msg("KEPT", seq=1)).data == b"one"
    await connection.close()


async def test_each_test_gets_a_database_of_its_own(service_database: FreshDatabase) -> None:
    first, second = await service_database("metering", migrated=()), await service_database("metering", migrated=())
    owner = await asyncpg.connect(first.owner_url)
    await owner.execute("CREATE TABLE only_here AS SELECT 1 AS one")
    await owner.close()
    login = await asyncpg.connect(first.url)
    assert await login.fetchval("SELECT one FROM only_here") == 1
    await login.close()
    login = await asyncpg.connect(second.url)
    with pytest.raises(asyncpg.UndefinedTableError):
        await login.fetchval("SELECT one FROM only_here")
    await login.close()
