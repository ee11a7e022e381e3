"""Streams and consumers are what the data says, whatever was there before."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StreamConfig

from shared.contracts.subjects import FACT_KINDS, JOB_EVENTS, fact_subject, job_subject
from shared.runtime.topology import CONSUMERS, STREAMS, ensure, rewind, stream_of
from tests.integration.runtime.stores import Stores, eventually
from tests.patience import PATIENCE_SECONDS


async def test_a_second_run_changes_nothing(stores: Stores, admin_js: JetStreamContext) -> None:
    assert await ensure(admin_js) == []


async def test_streams_keep_on_disk_by_limits_and_take_atomic_batches(
    stores: Stores, admin_js: JetStreamContext
) -> None:
    for name in STREAMS:
        config = (await admin_js.stream_info(name)).config
        assert config.allow_direct, "for asking what is the last message on a subject of one's own"
        assert (config.retention, config.storage, config.allow_atomic) == ("limits", "file", True)
        assert config.duplicate_window == 120
    assert (await admin_js.stream_info("CLUSTERS")).config.max_msgs_per_subject == 1


async def test_what_differs_is_updated_and_what_was_read_stays_read(stores: Stores, admin_js: JetStreamContext) -> None:
    await admin_js.publish("jobs.v1.acme.submitted", b"read")
    subscription = await admin_js.pull_subscribe_bind("stager", "JOBS")
    [message] = await subscription.fetch(1)
    await message.ack_sync()
    await admin_js.update_stream(StreamConfig(name="JOBS", subjects=["jobs.v1.>"], max_age=60, duplicate_window=60))
    await admin_js.add_consumer(
        "JOBS", ConsumerConfig(durable_name="stager", filter_subject="jobs.v1.*.queued", max_deliver=3)
    )
    done = await ensure(admin_js)
    assert [line.split(":")[0] for line in done] == ["stream JOBS updated", "consumer stager updated"]
    assert "max_age" in done[0]
    assert "filter_subjects" in done[1]
    assert await ensure(admin_js) == []
    info = await admin_js.consumer_info("JOBS", "stager")
    assert (info.config.max_deliver, info.num_pending) == (-1, 0)


async def test_a_rewound_consumer_reads_again_from_an_instant_on_and_stays_so(
    stores: Stores, admin_js: JetStreamContext
) -> None:
    async def publish_and_read(body: bytes) -> None:
        await admin_js.publish("facts.v1.launcher.accepted", body)
        subscription = await admin_js.pull_subscribe_bind("api", "FACTS")
        [message] = await subscription.fetch(1)
        assert message.data == body
        await message.ack_sync()

    await publish_and_read(b"before")
    await publish_and_read(b"after")
    stored = await admin_js.get_msg("FACTS", 2)
    assert stored.time is not None
    for _ in range(2):
        await rewind(admin_js, "api", stored.time - timedelta(microseconds=1))
        assert await ensure(admin_js) == [], "where it begins is nothing to put right"
        assert (await admin_js.consumer_info("FACTS", "api")).num_pending == 1
    await admin_js.delete_consumer("FACTS", "api")
    await rewind(admin_js, "api", stored.time + timedelta(seconds=1))
    assert (await admin_js.consumer_info("FACTS", "api")).num_pending == 0
    await publish_and_read(b"new")


async def test_every_event_and_fact_has_its_stream(stores: Stores, admin_js: JetStreamContext) -> None:
    subjects = [job_subject("acme", event) for event in JOB_EVENTS]
    subjects += [fact_subject(service, kind) for service, kinds in FACT_KINDS.items() for kind in kinds]
    for subject in subjects:
        assert (await admin_js.publish(subject, b"")).stream == stream_of(subject)


def test_a_subject_without_a_stream_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"no stream stores 'rpc\.v1\.api\.x'"):
        stream_of("rpc.v1.api.x")


def test_consumers_are_named_after_their_services() -> None:
    assert {name: consumer.stream for name, consumer in CONSUMERS.items()} == {
        "gatekeeper": "JOBS",
        "stager": "JOBS",
        "launcher": "JOBS",
        "watcher": "JOBS",
        "metering": "JOBS",
        "api": "FACTS",
        "gatekeeper_clusters": "CLUSTERS",
    }


def run(environ: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    command = [sys.executable, "-m", "shared.runtime.topology", *arguments]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def as_administrator(stores: Stores) -> dict[str, str]:
    """The environment of the command."""
    root = Path(__file__).parents[3]
    environ = {**os.environ, **stores.environ("api"), "TIDEGATE_NATS_USER": "admin", "PYTHONPATH": str(root)}
    return {**environ, "TIDEGATE_NATS_PASSWORD": stores.nats.password("admin")}


async def test_stays_and_makes_anew_what_is_gone(stores: Stores, admin_js: JetStreamContext) -> None:
    command = [sys.executable, "-m", "shared.runtime.topology", "--keep"]
    process = await asyncio.create_subprocess_exec(
        *command, env=as_administrator(stores), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        await admin_js.delete_stream("USAGE")
        line = await asyncio.wait_for(process.stderr.readline(), PATIENCE_SECONDS)
        assert b"stream USAGE created" in line
        stores.nats.kill()
        await asyncio.to_thread(stores.nats.start)

        async def back() -> bool:
            assert process.returncode is None
            return b"broker is back" in await asyncio.wait_for(process.stderr.readline(), PATIENCE_SECONDS)  # type: ignore[union-attr] # asserted above

        await eventually(back, "the process to find the broker again")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_runs_as_a_command_with_the_administrators_login(stores: Stores, admin_js: JetStreamContext) -> None:
    await admin_js.delete_stream("USAGE")
    environ = as_administrator(stores)
    assert await asyncio.to_thread(run, environ) == (0, "stream USAGE created\n", "")
    for arguments in ([], ["--keep"]):
        code, _, errors = await asyncio.to_thread(run, {**environ, "TIDEGATE_NATS_PASSWORD": "guess"}, *arguments)
        assert code == 1
        assert "topology: " in errors
        assert "Authorization" in errors
