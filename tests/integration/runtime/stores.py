"""What the runtime's tests connect to, and how they wait."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
from nats.js import JetStreamContext
from pydantic import SecretStr

from shared.runtime.messages import Delivery
from shared.runtime.outbox import Outgoing
from shared.runtime.service import Service
from shared.runtime.settings import ServiceSettings
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer, PostgresServer

DATABASE = "tidegate_runtime"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Stores:
    """A provisioned database and a broker with streams, both empty."""

    postgres: PostgresServer
    nats: NatsServer

    def dsn(self, role: str) -> str:
        """The address for a login role of the database."""
        return self.postgres.postgres.url(role, self.postgres.password(role), DATABASE)

    def service(self, name: str, *, replica: str | None = None, restores_itself: bool = False) -> Service:
        """A replica of a service, with the product's name and logins, to be given handlers."""
        settings = ServiceSettings(
            database_url=SecretStr(self.dsn(name)),
            nats_url=self.nats.url,
            nats_user=name,
            nats_password=SecretStr(self.nats.password(name)),
            replica=replica or f"{name}-{next(_numbers)}",
            log_level="DEBUG",
        )
        return Service(name, settings, restores_itself=restores_itself)

    def environ(self, name: str) -> dict[str, str]:
        """The same for a process of its own."""
        return {
            "TIDEGATE_DATABASE_URL": self.dsn(name),
            "TIDEGATE_NATS_URL": self.nats.url,
            "TIDEGATE_NATS_USER": name,
            "TIDEGATE_NATS_PASSWORD": self.nats.password(name),
        }

    async def rows(self, sql: str) -> list[asyncpg.Record]:
        """What the superuser sees."""
        connection = await asyncpg.connect(self.postgres.superuser_url(DATABASE))
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql)
            return rows
        finally:
            await connection.close()


class Received:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[Delivery]] = []

    async def __call__(self, deliveries: list[Delivery]) -> None:
        self.batches.append(list(deliveries))

    @property
    def bodies(self) -> list[str]:
        """Every body delivered, in order, repeats included."""
        return [delivery.body.decode() for batch in self.batches for delivery in batch]

    async def all(self, bodies: Iterable[str], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until each of these was delivered."""
        wanted = set(bodies)

        async def there() -> bool:
            return wanted <= set(self.bodies)

        try:
            await eventually(there, f"{len(wanted)} messages", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; missing: {sorted(wanted - set(self.bodies))[:10]}") from None


def a_message(body: str, *, key: str = "job", msg_id: str | None = None, event: str = "queued") -> Outgoing:
    """A job event of tenant acme that the gatekeeper reads; its body doubles as its id."""
    return Outgoing(f"jobs.v1.acme.{event}", msg_id or body, key, body.encode())


async def enqueue(service: Service, messages: Sequence[Outgoing]) -> None:
    """Have the service publish these, in one transaction."""
    async with service.db.transaction() as tx:
        await tx.enqueue(messages)


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """All of them at work."""
    async with AsyncExitStack() as stack:
        for service in services:
            await stack.enter_async_context(service.lifespan())
        yield


async def eventually(condition: Callable[[], Awaitable[object]], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; a test that waits in vain says for what."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        await asyncio.sleep(0.02)


async def bodies_of(js: JetStreamContext, stream: str = "JOBS") -> list[str]:
    """What the stream holds, in its order."""
    info = await js.stream_info(stream)
    messages = [await js.get_msg(stream, seq) for seq in range(1, info.state.last_seq + 1)]
    return [(message.data or b"").decode() for message in messages]


async def unsent(stores: Stores, service: str = "api") -> int:
    [row] = await stores.rows(f"SELECT count(*) FROM {service}.outbox WHERE sent_at IS NULL")
    return int(row["count"])


async def all_sent(stores: Stores, seconds: float = PATIENCE_SECONDS, *, service: str = "api") -> None:
    async def none_left() -> bool:
        return await unsent(stores, service) == 0

    await eventually(none_left, "the outbox to be sent", seconds)
