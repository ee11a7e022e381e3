"""The watcher at work: capacity and facts out to JetStream, logs to whoever asks."""

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from services.watcher.app import create
from services.watcher.settings import WatcherSettings
from shared.backends.local.endpoint import read_endpoint
from shared.backends.local.sightings import LocalState
from shared.contracts.facts import decode_fact
from shared.contracts.queries import Capacity, EndpointAnswer, EndpointAsked, LogsAnswer, LogsAsked
from shared.lifecycle import facts as f
from shared.runtime.clock import SystemClock
from shared.runtime.database import Database
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.backends.local.harness import Backend, Failpoints
from tests.integration.launcher.processes import Process, process
from tests.integration.launcher.story import Job
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer


@pytest.fixture
async def admin(nats_url: str, nats_server: NatsServer) -> AsyncIterator[Client]:
    """The broker's administrator, with every stream and consumer there."""
    connection = await nats.connect(nats_url, **nats_server.login("admin"))
    await ensure(connection.jetstream())
    yield connection
    await connection.close()


@pytest.fixture
async def api(nats_url: str, nats_server: NatsServer) -> AsyncIterator[Client]:
    """The api's login."""
    connection = await nats.connect(nats_url, **nats_server.login("api"))
    yield connection
    await connection.close()


@pytest.fixture
async def watcher(
    admin: Client, service_database: FreshDatabase, nats_server: NatsServer, backend: Backend
) -> AsyncIterator[None]:
    """A watcher at work."""
    database = await service_database("watcher")
    async with create(settings_for(database, nats_server, backend)).lifespan():
        yield


def settings_for(database: ServiceDatabase, server: NatsServer, backend: Backend) -> WatcherSettings:
    """Of a watcher of this test."""
    return WatcherSettings.model_validate(
        {
            "database_url": database.url,
            "nats_url": server.url,
            "nats_user": "watcher",
            "nats_password": server.password("watcher"),
            "local_root": backend.root,
        }
    )


@pytest.fixture
async def replicas(
    admin: Client, service_database: FreshDatabase, nats_server: NatsServer, backend: Backend, tmp_path: Path
) -> AsyncIterator[tuple[Process, Process, Failpoints]]:
    """Two watcher processes at work, that obey orders."""
    places = Failpoints(tmp_path / "failpoints")
    database = await service_database("watcher")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                process(
                    database,
                    nats_server,
                    backend.root,
                    tmp_path / f"{name}.log",
                    TIDEGATE_REPLICA=name,
                    **places.environment,
                )
            )
            for name in ("one", "two")
        )
        one.start()
        two.start()
        yield one, two, places


async def eventually(look: Callable[[], Any], what: str) -> Any:
    """Wait for what `look` gives."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while (found := await look()) is None:
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.02)
    return found


async def last(admin: Client, stream: str, subject: str) -> bytes | None:
    """The newest message on a subject."""
    try:
        message = await admin.jetstream().get_last_msg(stream, subject)
    except NotFoundError:
        return None
    return message.data


async def capacity(admin: Client) -> Capacity | None:
    """The newest report."""
    body = await last(admin, "CLUSTERS", "clusters.v1.local.capacity")
    return None if body is None else Capacity.model_validate_json(body)


@pytest.mark.usefixtures("watcher")
async def test_capacity_is_told_at_the_start_and_when_the_host_is_gone(admin: Client, backend: Backend) -> None:
    told = await eventually(lambda: capacity(admin), "a report")
    assert (told.gpus, told.slots, told.virtual, told.reachable) == (8, 40, True, True)
    assert (told.cluster, told.coretype) == ("local", "local")
    backend.kill_host()

    async def unreachable() -> Capacity | None:
        report = await capacity(admin)
        return None if report is None or report.reachable else report

    told = await eventually(unreachable, "a report that the host is gone")
    assert (told.gpus, told.slots) == (8, 40)


@pytest.mark.usefixtures("watcher")
async def test_a_job_is_told_from_start_to_end_and_its_output_can_be_read(
    admin: Client, api: Client, backend: Backend
) -> None:
    job = Job("sh", "-c", "printf 'one\\ntwo\\n'; echo oops >&2; exit 3")
    request = await backend.request(job.id, *job.spec.command)
    await backend.submit(request)
    body = await eventually(lambda: last(admin, "FACTS", "facts.v1.watcher.exited"), "an exit")
    assert decode_fact("facts.v1.watcher.exited", body).job == job.id

    async def ask(**how: Any) -> LogsAnswer:
        asked = LogsAsked(tenant="acme", job=job.id, attempt=1, **how)
        reply = await api.request("rpc.v1.watcher.logs", asked.model_dump_json().encode(), timeout=PATIENCE_SECONDS)
        assert "Tidegate-Error" not in (reply.headers or {}), reply.headers
        return LogsAnswer.model_validate_json(reply.data)

    answer = await ask()
    assert (answer.found, base64.b64decode(answer.data)) == (True, b"one\ntwo\n")
    assert (answer.next_offset, answer.size_bytes) == (8, 8)
    assert base64.b64decode((await ask(stream="stderr")).data) == b"oops\n"
    rest = await ask(offset=4, limit_bytes=2)
    assert (base64.b64decode(rest.data), rest.next_offset, rest.size_bytes) == (b"tw", 6, 8)


@pytest.mark.usefixtures("watcher")
async def test_where_a_workstation_listens_is_told_to_whoever_leads_its_user_there(
    admin: Client, api: Client, backend: Backend
) -> None:
    """It is its tenant's, and of the attempt that is up; a question about anything else gets no answer."""
    listen = "exec python3 -m http.server $TIDEGATE_PORT --bind 127.0.0.1"
    job = Job("sh", "-c", listen, kind="workstation")
    request = await backend.request(job.id, *job.spec.command, tenant=job.record.tenant, workstation=True)
    job.staged()
    submission = await backend.submit(request)
    at = SystemClock().now()
    segment = f.SegmentKey(submission=submission, created_at=at)
    told = job.apply(
        f.Accepted(**job.head("launcher", at), segment=segment, backend="local", cluster="local", ref=submission)
    )
    assert told is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.jetstream(timeout=PATIENCE_SECONDS).publish(told.subject, told.body)

    async def ask(tenant: str = "acme", attempt: int = 1) -> EndpointAnswer | None:
        asked = EndpointAsked(tenant=tenant, job=job.id, attempt=attempt)
        reply = await api.request("rpc.v1.watcher.endpoint", asked.model_dump_json().encode(), timeout=PATIENCE_SECONDS)
        answer = EndpointAnswer.model_validate_json(reply.data)
        return None if answer.port is None else answer

    answer = await eventually(ask, "an endpoint")
    known = read_endpoint(backend.root, submission)
    assert known is not None
    assert (answer.port, answer.secret) == (known.port, known.secret)
    assert await ask(tenant="umbra") is None
    assert await ask(attempt=2) is None
    await backend.client.kill(submission)
    await backend.until(submission, LocalState.EXITED)
    assert await ask() is None


@pytest.mark.usefixtures("watcher")
async def test_names_that_lead_elsewhere_are_refused(api: Client, tmp_path: Path) -> None:
    asked = LogsAsked(tenant="../../etc", job="j" + "0" * 26, attempt=1)
    reply = await api.request("rpc.v1.watcher.logs", asked.model_dump_json().encode(), timeout=PATIENCE_SECONDS)
    assert reply.headers is not None
    assert "no tenant's name" in reply.headers["Tidegate-Error"]


async def test_after_a_restore_it_tells_what_was_released_and_says_that_it_is_in_step(
    admin: Client, api: Client, service_database: FreshDatabase, nats_server: NatsServer, backend: Backend
) -> None:
    job = Job("true")
    request = await backend.request(job.id, *job.spec.command)
    await backend.run(request)
    await backend.client.release(request.submission)
    fresh = await service_database("watcher")
    database = Database(fresh.url, schema="watcher")
    await database.connect()
    await database.execute("UPDATE standing SET epoch = 2, restoring = true")
    await database.close()

    async def in_step() -> bool | None:
        reply = await api.request("rpc.v1.watcher.standing", b"", timeout=PATIENCE_SECONDS)
        standing = json.loads(reply.data)
        return None if standing["restoring"] or standing["unsent"] else standing["epoch"] == 2

    async with create(settings_for(fresh, nats_server, backend)).lifespan():
        assert await eventually(in_step, "in step")
    body = await last(admin, "FACTS", "facts.v1.watcher.exited")
    assert body is not None
    fact = decode_fact("facts.v1.watcher.exited", body)
    assert (fact.job, fact.version.epoch) == (job.id, 2)


async def told_of(admin: Client, job: Job) -> list[str]:
    """The kinds of fact that the stream holds about a job, in their order."""
    stream = admin.jetstream()
    last_seq = (await stream.stream_info("FACTS")).state.last_seq
    messages = [await stream.get_msg("FACTS", seq) for seq in range(1, last_seq + 1)]
    facts = [decode_fact(message.subject or "", message.data or b"") for message in messages]
    return [fact.kind for fact in facts if fact.job == job.id]


async def test_a_frozen_observer_is_followed_and_tells_nothing_when_it_goes_on(
    admin: Client, backend: Backend, replicas: tuple[Process, Process, Failpoints]
) -> None:
    one, two, places = replicas
    job = Job("sh", "-c", "while true; do sleep 0.05; done")
    submission = await backend.submit(await backend.request(job.id, *job.spec.command))
    await eventually(lambda: last(admin, "FACTS", "facts.v1.watcher.seen_running"), "the start")
    places.arm("watcher.observe.after", "stop")
    frozen = await places.until_obeyed("watcher.observe.after")
    await backend.client.kill(submission)
    await eventually(lambda: last(admin, "FACTS", "facts.v1.watcher.exited"), "the end, told by the other one")
    os.kill(frozen, signal.SIGCONT)
    assert [replica.end(signal.SIGTERM) for replica in (one, two)] == [0, 0]
    assert await told_of(admin, job) == ["seen_running", "exited"]
