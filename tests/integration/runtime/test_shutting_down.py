"""SIGTERM: the running batch ends and is acknowledged, what was fetched goes back at once, the exit code is 0."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats.js import JetStreamContext

from shared.runtime.topology import ACK_WAIT_SECONDS
from tests.integration.runtime.stores import PROCESS_SECONDS, Received, Stores, a_message, enqueue, eventually, running

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
    async with asyncio.timeout(PROCESS_SECONDS):
        while words not in (await process.stderr.readline()).decode():
            assert not process.stderr.at_eof(), f"it ended without saying {words!r}"


async def batch_of(folder: Path) -> list[str]:
    """The bodies that the process is working on."""

    async def begun() -> bool:
        return (folder / "begun").exists() and bool((folder / "begun").read_text())

    await eventually(begun, "the process to begin a batch", PROCESS_SECONDS)
    return (folder / "begun").read_text().split()


async def test_sigterm_midway_finishes_the_batch_and_hands_back_the_rest_at_once(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    api, other, received = stores.service("api"), stores.service("gatekeeper"), Received()
    other.consume("gatekeeper")(received)
    numbers = [f"{number}" for number in range(9)]
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
            await received.all(rest, seconds=ACK_WAIT_SECONDS / 2)

            async def nothing_owed() -> bool:
                info = await admin_js.consumer_info("JOBS", "gatekeeper")
                return (info.num_ack_pending, info.num_pending) == (0, 0)

            await eventually(nothing_owed, "the finished batch to be acknowledged", seconds=ACK_WAIT_SECONDS / 2)
        assert set(received.bodies) == rest


async def test_sigterm_hands_back_at_once_though_the_running_batch_takes_its_time(
    stores: Stores, tmp_path: Path
) -> None:
    """And a batch that does not end in time is cancelled and handed back too: the exit is still clean."""
    api, other, received = stores.service("api"), stores.service("gatekeeper"), Received()
    other.consume("gatekeeper")(received)
    numbers = [f"{number}" for number in range(9)]
    async with running(api):
        await enqueue(api, [a_message(number) for number in numbers])
        async with a_process(stores, tmp_path) as process:
            working_on = await batch_of(tmp_path)
            process.send_signal(signal.SIGTERM)
            async with running(other):
                await received.all(set(numbers) - set(working_on), seconds=ACK_WAIT_SECONDS / 2)
                assert process.returncode is None, "its batch still runs"
                assert not set(working_on) & set(received.bodies)
                assert await process.wait() == 0
                await received.all(numbers, seconds=ACK_WAIT_SECONDS / 2)


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


async def test_enqueued_messages_leave_before_the_exit(stores: Stores) -> None:
    api, gatekeeper, received = stores.service("api"), stores.service("gatekeeper"), Received()
    gatekeeper.consume("gatekeeper")(received)
    async with running(gatekeeper):
        async with running(api):
            await enqueue(api, [a_message(f"{number}") for number in range(1200)])
        assert not await stores.rows("SELECT 1 FROM api.outbox WHERE sent_at IS NULL")
        await received.all([f"{number}" for number in range(1200)])
