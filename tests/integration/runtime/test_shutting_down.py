"""SIGTERM: the running batch ends and is acknowledged, what was fetched goes back at once, the exit code is 0."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from shared.runtime import service
from shared.runtime.topology import CONSUMERS
from tests.integration.runtime.stores import Received, Stores, a_message, enqueue, eventually, running
from tests.patience import PATIENCE_SECONDS

PROGRAM = Path(__file__).parent / "slow_service.py"
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def a_process(stores: Stores, folder: Path, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The slow gatekeeper as a process of its own; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        str(folder),
        env={**os.environ, **stores.environ("gatekeeper"), "PYTHONPATH": str(ROOT), **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process, words: str) -> None:
    """Wait for a line of its log that holds these words."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while words not in (await process.stderr.readline()).decode():
            assert not process.stderr.at_eof(), f"it ended without saying {words!r}"


async def batch_of(folder: Path) -> list[str]:
    """The bodies that the process is working on."""

    async def begun() -> bool:
        return (folder / "begun").exists() and bool((folder / "begun").read_text())

    await eventually(begun, "the process to begin a batch")
    return (folder / "begun").read_text().split()


async def nothing_comes_again_by_itself(admin_js: JetStreamContext) -> None:
    """What comes again from now on was handed back: nobody waits for its acknowledgement to be late."""
    config = CONSUMERS["gatekeeper"].config()
    config.ack_wait = 3600.0
    await admin_js.add_consumer("JOBS", config)


async def fetched(admin_js: JetStreamContext, count: int) -> set[str]:
    """So many bodies, as another replica gets them."""
    subscription = await admin_js.pull_subscribe_bind("gatekeeper", "JOBS")
    bodies: set[str] = set()
    while len(bodies) < count:
        messages = await subscription.fetch(count - len(bodies), timeout=PATIENCE_SECONDS)
        bodies |= {message.data.decode() for message in messages}
    await subscription.unsubscribe()
    return bodies


async def test_sigterm_midway_finishes_the_batch_and_hands_back_the_rest_at_once(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    api, other, received = stores.service("api"), stores.service("gatekeeper"), Received()
    other.consume("gatekeeper")(received)
    numbers = [f"{number}" for number in range(9)]
    await nothing_comes_again_by_itself(admin_js)
    async with running(api):
        await enqueue(api, [a_message(number) for number in numbers])
        async with a_process(stores, tmp_path) as process:
            working_on = await batch_of(tmp_path)

            async def fetched_ahead() -> bool:
                pending = (await admin_js.consumer_info("JOBS", "gatekeeper")).num_ack_pending
                return pending is not None and pending > len(working_on)

            await eventually(fetched_ahead, "more to be fetched than is worked on")
            process.send_signal(signal.SIGTERM)
            await said(process, "fetched messages handed back count=")
            (tmp_path / "go").touch()
            assert await process.wait() == 0
        async with running(other):
            rest = set(numbers) - set(working_on)
            await received.all(rest)

            async def nothing_owed() -> bool:
                info = await admin_js.consumer_info("JOBS", "gatekeeper")
                return (info.num_ack_pending, info.num_pending) == (0, 0)

            await eventually(nothing_owed, "the finished batch to be acknowledged")
        assert set(received.bodies) == rest


async def test_sigterm_hands_back_at_once_though_the_running_batch_takes_its_time(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    """And a batch that does not end in time is cancelled and handed back too: the exit is still clean."""
    api = stores.service("api")
    numbers = [f"{number}" for number in range(9)]
    await nothing_comes_again_by_itself(admin_js)
    async with running(api):
        await enqueue(api, [a_message(number) for number in numbers])
        async with a_process(stores, tmp_path) as process:
            working_on = await batch_of(tmp_path)
            process.send_signal(signal.SIGTERM)
            rest = set(numbers) - set(working_on)
            assert await fetched(admin_js, len(rest)) == rest
            assert process.returncode is None, "its batch still runs"
            assert await process.wait() == 0
            assert await fetched(admin_js, len(working_on)) == set(working_on)


async def test_sigterm_ends_a_service_that_still_waits_for_its_stores(stores: Stores, tmp_path: Path) -> None:
    async with a_process(stores, tmp_path, TIDEGATE_NATS_URL="nats://127.0.0.1:1") as process:
        await said(process, "waiting for the broker")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_refused_login_ends_the_process_and_says_so(stores: Stores, tmp_path: Path) -> None:
    async with a_process(stores, tmp_path, TIDEGATE_NATS_PASSWORD="wrong") as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"refuses user gatekeeper" in errors
    assert b"wrong" not in errors
    assert b"Traceback" not in errors
    dsn = stores.dsn("gatekeeper").replace(stores.postgres.password("gatekeeper"), "mistaken")
    async with a_process(stores, tmp_path, TIDEGATE_DATABASE_URL=dsn) as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"PostgreSQL refuses the login for schema gatekeeper" in errors
    assert b"mistaken" not in errors


async def test_enqueued_messages_leave_before_the_exit(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_RELAY_SECONDS", PATIENCE_SECONDS)  # what it has on a machine that is not busy
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    gatekeeper.consume("gatekeeper")(received)
    async with running(gatekeeper):
        async with running(api):
            await enqueue(api, [a_message(f"{number}") for number in range(1200)])
        assert not await stores.rows("SELECT 1 FROM api.outbox WHERE sent_at IS NULL")
        await received.all([f"{number}" for number in range(1200)])
