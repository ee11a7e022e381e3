"""The service as the process that a deployment runs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from nats.js import JetStreamContext

from infra.embedded.ports import Ports
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.api.conftest import ACME_USER, eventually
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer

TOKENS = f'[{{"token": "{ACME_USER}", "tenant": "acme", "user": "rin"}}]'


def _environ(database: ServiceDatabase, nats_server: NatsServer, folder: Path, port: int) -> dict[str, str]:
    (folder / "tokens.json").write_text(TOKENS)
    return {
        "PATH": os.environ["PATH"],
        "TIDEGATE_DATABASE_URL": database.url,
        "TIDEGATE_NATS_URL": nats_server.url,
        "TIDEGATE_NATS_USER": "api",
        "TIDEGATE_NATS_PASSWORD": nats_server.password("api"),
        "TIDEGATE_HTTP_PORT": str(port),
        "TIDEGATE_BLOB_URL": (folder / "blobs").as_uri(),
        "TIDEGATE_BOOTSTRAP_TOKENS_FILE": str(folder / "tokens.json"),
    }


@contextmanager
def _process(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "services.api"], env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def port(tmp_path: Path) -> int:
    """One that nobody else takes while the test runs."""
    return Ports(tmp_path, {}).some("http")


async def _answers(client: httpx.AsyncClient, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            assert (await client.get("/v1/whoami")).status_code == 200
            return
        except httpx.ConnectError:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "it does not answer"
            await asyncio.sleep(0.1)


async def test_a_stop_ends_open_streams_and_exits_cleanly(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path, port: int
) -> None:
    database = await service_database("api")
    headers = {"Authorization": f"Bearer {ACME_USER}", "Accept": "text/event-stream"}
    with _process(_environ(database, nats_server, tmp_path, port)) as process:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_SECONDS
        ) as client:
            await _answers(client, process)
            async with client.stream("GET", "/v1/events") as response:
                lines = response.aiter_lines()
                assert await anext(lines) == "id: 0"
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert {line async for line in lines} <= {"", ": alive"}
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0
        log = process.communicate()[1]
        assert "stopped" in log
        assert ACME_USER not in log
        assert "Traceback" not in log


async def _length(answered: list[str], least: int) -> bool:
    return len(answered) >= least


async def test_a_kill_loses_nothing_that_was_answered(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path, port: int
) -> None:
    database = await service_database("api")
    environ = _environ(database, nats_server, tmp_path, port)
    headers = {"Authorization": f"Bearer {ACME_USER}"}
    answered: list[str] = []
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_SECONDS
    ) as client:
        with _process(environ) as process:
            await _answers(client, process)

            async def submit() -> None:
                while True:
                    try:
                        response = await client.post("/v1/jobs", json={"spec": {"command": ["true"]}})
                    except httpx.TransportError:
                        return
                    answered.append(response.json()["id"])

            submitting = [asyncio.create_task(submit()) for _ in range(4)]
            await eventually(lambda: _length(answered, 20), "twenty answers")
            process.kill()
            await asyncio.gather(*submitting)
        with _process(environ) as process:
            await _answers(client, process)
            for job in answered:
                assert (await client.get(f"/v1/jobs/{job}")).status_code == 200
            subscription = await streams.subscribe("jobs.v1.acme.queued", ordered_consumer=True)
            published = set[str]()
            while not published.issuperset(answered):
                message = await subscription.next_msg(timeout=PATIENCE_SECONDS)
                published.add((message.headers or {})["ce-subject"])


async def test_says_what_is_wrong_with_its_settings(tmp_path: Path) -> None:
    with _process({"PATH": os.environ["PATH"], "TIDEGATE_HTTP_PORT": "no number"}) as process:
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 1
        log = process.communicate()[1]
        assert "TIDEGATE_HTTP_PORT: 'no number' is not right" in log
        assert "TIDEGATE_BLOB_URL: not set" in log
        assert "Traceback" not in log
