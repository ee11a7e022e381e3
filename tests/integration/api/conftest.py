"""A running api on a database and a broker of the test's own, and clients of two tenants."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
import uvicorn
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from pydantic import SecretStr

from services.api import asking
from services.api.app import create_app
from services.api.context import Api
from services.api.settings import ApiSettings, BootstrapToken
from shared.contracts.facts import encode_fact
from shared.contracts.subjects import FACT_KINDS
from shared.lifecycle.facts import FACT, AnyFact
from shared.runtime.leases import Lease
from shared.runtime.service import Service
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.api.behind import ACME_USER as ACME_USER
from tests.integration.api.behind import Process, Server, Watcher, a_workstation_up, listening
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer

ACME_ADMIN, UMBRA_USER = (f"token-of-{name}-for-tests" for name in ("ada", "kay"))
SENDER_OF = {kind: service for service, kinds in FACT_KINDS.items() for kind in kinds}


@dataclass
class RunningApi:
    """The api, and what a test needs to speak with it and to look behind it."""

    url: str
    api: Api
    service: Service
    database: ServiceDatabase
    nats: NatsServer
    facts_sent: int = 0
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    def client(self, token: str | None = ACME_USER) -> httpx.AsyncClient:
        """An HTTP client with a token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._clients.append(httpx.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS))
        return self._clients[-1]

    async def submit(self, client: httpx.AsyncClient, **spec: Any) -> dict[str, Any]:
        """A job of `true`, or what is given."""
        response = await client.post("/v1/jobs", json={"spec": {"command": ["true"], **spec}})
        assert response.status_code == 201, response.text
        view: dict[str, Any] = response.json()
        return view

    async def report(self, kind: str, job: str, *, tenant: str = "acme", attempt: int = 1, **fields: Any) -> AnyFact:
        """Send a fact as its service would."""
        self.facts_sent += 1
        at = datetime.now(UTC).isoformat()
        base = {"kind": kind, "job": job, "tenant": tenant, "attempt": attempt, "at": at, "source": "a test"}
        fact = FACT.validate_python({**base, "version": {"n": self.facts_sent}, **fields})
        wire = encode_fact(SENDER_OF[kind], fact)
        await self.send(SENDER_OF[kind], wire.subject, wire.body)
        return fact

    async def send(self, user: str, subject: str, body: bytes) -> None:
        """Store a message in a stream."""
        connection = await nats.connect(self.nats.url, **self.nats.login(user))
        try:
            await connection.jetstream(timeout=PATIENCE_SECONDS).publish(subject, body)
        finally:
            await connection.close()

    @property
    def lease(self) -> Lease:
        """What one replica of the api does for all."""
        return self.service._leases._leases["announce"]

    async def leads(self) -> None:
        """Return once this replica is the one."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.lease.taken()

    async def becomes(self, client: httpx.AsyncClient, job: str, state: str) -> dict[str, Any]:
        """The job once it is in this state."""

        async def view() -> dict[str, Any] | None:
            shown: dict[str, Any] = (await client.get(f"/v1/jobs/{job}")).json()
            return shown if shown["state"] == state else None

        became: dict[str, Any] = await eventually(view, f"{job} to become {state}")
        return became

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


async def eventually(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """What the condition gives once it is true; a test that waits in vain says for what."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (found := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        await asyncio.sleep(0.02)
    return found


@pytest.fixture(autouse=True)
def every_question_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is there, that is known at once; who is there answers, on a busy machine late."""
    monkeypatch.setattr(asking, "_QUICK_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(Service.call, "__defaults__", (PATIENCE_SECONDS,))


@pytest.fixture
async def streams(nats_url: str, nats_server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """All streams and consumers, empty."""
    connection = await nats.connect(nats_url, **nats_server.login("admin"))
    await ensure(connection.jetstream(timeout=PATIENCE_SECONDS))
    yield connection.jetstream(timeout=PATIENCE_SECONDS)
    await connection.close()


def settings_for(database: ServiceDatabase, nats_server: NatsServer, blobs: Path, **more: Any) -> ApiSettings:
    """Settings of an api with three tokens in two tenants."""
    tokens = (
        BootstrapToken(token=SecretStr(ACME_USER), tenant="acme", user="rin"),
        BootstrapToken(token=SecretStr(ACME_ADMIN), tenant="acme", user="ada", role="admin"),
        BootstrapToken(token=SecretStr(UMBRA_USER), tenant="umbra", user="kay"),
    )
    return ApiSettings(
        **{
            "database_url": SecretStr(database.url),
            "nats_url": nats_server.url,
            "nats_user": "api",
            "nats_password": SecretStr(nats_server.password("api")),
            "http_port": 0,
            "blob_url": f"file://{blobs}",
            "bootstrap_tokens": tokens,
            "log_level": "WARNING",
            **more,
        }
    )


@contextlib.asynccontextmanager
async def running(
    settings: ApiSettings, database: ServiceDatabase, nats_server: NatsServer
) -> AsyncIterator[RunningApi]:
    """The api under uvicorn in this event loop, until the block ends."""
    app, service, feed = create_app(settings)
    config = uvicorn.Config(
        app,
        port=0,
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
        # Longer than a client keeps an idle connection (5 s): else one is closed while the next request goes out on it.
        timeout_keep_alive=int(PATIENCE_SECONDS),
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not serving.done(), "uvicorn ended while starting"
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        api = RunningApi(f"http://127.0.0.1:{port}", app.state.api, service, database, nats_server)
        yield api
        await api.close()
    finally:
        feed.close()
        server.should_exit = True
        await serving


@pytest.fixture
async def api(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> AsyncIterator[RunningApi]:
    """An api with the tenants acme (a user, an admin) and umbra (a user)."""
    database = await service_database("api")
    async with running(settings_for(database, nats_server, tmp_path), database, nats_server) as api:
        yield api


@pytest.fixture
def rin(api: RunningApi) -> httpx.AsyncClient:
    """A user of acme."""
    return api.client(ACME_USER)


@pytest.fixture
def ada(api: RunningApi) -> httpx.AsyncClient:
    """An admin, whose tenant is acme."""
    return api.client(ACME_ADMIN)


@pytest.fixture
def kay(api: RunningApi) -> httpx.AsyncClient:
    """A user of umbra."""
    return api.client(UMBRA_USER)


Reply = Callable[[bytes], bytes]
Answering = Callable[[str, str, Reply], Awaitable[None]]


@contextlib.asynccontextmanager
async def answering_on(api: RunningApi) -> AsyncIterator[Answering]:
    """`await answering("gatekeeper", "fits", reply)`: another service's answer to a query, until the block ends."""
    connections: list[Client] = []

    async def serve(service: str, method: str, reply: Reply) -> None:
        connection = await nats.connect(api.nats.url, **api.nats.login(service))
        connections.append(connection)

        async def answer(message: Msg) -> None:
            await message.respond(reply(message.data))

        await connection.subscribe(f"rpc.v1.{service}.{method}", cb=answer)
        await connection.flush()

    yield serve
    for connection in connections:
        await connection.close()


@pytest.fixture
async def answering(api: RunningApi) -> AsyncIterator[Answering]:
    """The same for the whole test."""
    async with answering_on(api) as serve:
        yield serve


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    """A workstation's process."""
    async with listening() as process:
        yield process


@pytest.fixture
async def watcher(answering: Answering) -> Watcher:
    """Says where workstations listen."""
    return await Watcher.of(answering)


@pytest.fixture
async def desk(api: RunningApi, rin: httpx.AsyncClient, process: Process, watcher: Watcher) -> str:
    """A workstation that is up."""
    return await a_workstation_up(api, rin, process, watcher)
