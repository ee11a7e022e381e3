"""What catching up costs after an outage of the broker: messages needed, messages sent, and the ratio.

`python -m tests.bench.outage` fills a stack of its own with jobs that wait at a gate, takes nats-server away for a
minute while jobs are submitted and stopped, and counts until everything is quiet again. Needed are the events and facts
about those jobs that were written since the outage began, each once; sent is what the broker has stored since then,
about whatever job.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import nats
import nats.errors
from nats.js import JetStreamContext

from shared.client.client import Tidegate
from shared.contracts.subjects import FACT_KINDS
from shared.runtime.topology import CONSUMERS
from tests.e2e.stacks import Stack, superuser_url

AIM: Final = 3
"""Messages sent per message needed, at most."""
_QUIET_SECONDS: Final = 40  # above what a cluster may be silent for, which is told to all who wait
_WAITED_SECONDS: Final = 900
_STREAMS: Final = ("JOBS", "FACTS", "USAGE")
_OUTBOXES: Final = ("api.events", *(f"{service}.outbox" for service in (*FACT_KINDS, "metering")))

NEWEST: Final = "SELECT coalesce(max(id), 0) FROM {table}"
# What is told of a job twice, under whatever version, is sent twice, and needed once.
SINCE: Final = "SELECT count(DISTINCT (key, subject)) FROM {table} WHERE id > $1 AND key = ANY ($2)"
SINCE_EVENTS: Final = "SELECT count(DISTINCT (job, type)) FROM api.events WHERE id > $1 AND job = ANY ($2)"
UNSENT: Final = "SELECT count(*) FROM {table} WHERE sent_at IS NULL"


@dataclass(frozen=True)
class Counted:
    """What the broker has stored in the streams of jobs, facts and usage, delivered of it, and not yet delivered."""

    stored: int
    delivered: int
    waiting: int


def main() -> int:
    """Run it; 0 where catching up kept to the aim."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=5000, help="in the system before the outage")
    asked.add_argument("--moved", type=int, default=200, help="submitted, and as many stopped, during the outage")
    asked.add_argument("--seconds", type=int, default=60, help="how long the broker is away")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-outage-") as folder:
        stack = Stack(Path(folder))
        stack.up("--virtual-gpus", "8", "--slots", "4")
        try:
            return asyncio.run(measure(stack, options.jobs, options.moved, options.seconds))
        finally:
            stack.down()


async def measure(stack: Stack, jobs: int, moved: int, seconds: int) -> int:
    """Fill, take the broker away, let it come back, and count."""
    database = await asyncpg.connect(superuser_url(stack))
    with stack.client() as client:
        ids = submit(client, jobs)
        before = await quiet(stack, database)
        newest = {table: await database.fetchval(NEWEST.format(table=table)) for table in _OUTBOXES}
        with stack.server_down("nats"):
            until = time.monotonic() + seconds
            touched = submit(client, moved) + ids[-moved:]
            for job in ids[-moved:]:
                client.command(job, "stop")
            await asyncio.sleep(max(0.0, until - time.monotonic()))
        back = time.monotonic()
        after = await quiet(stack, database)
        took = time.monotonic() - back - _QUIET_SECONDS
    needed = await database.fetchval(SINCE_EVENTS, newest.pop("api.events"), touched)
    for table, last in newest.items():
        needed += await database.fetchval(SINCE.format(table=table), last, touched)
    await database.close()
    sent, delivered = after.stored - before.stored, after.delivered - before.delivered
    print(
        f"{jobs} jobs in the system; broker away for {seconds} s, in which {moved} were submitted and {moved} stopped"
    )
    print(f"quiet again {took:.0f} s after it was back")
    print(f"needed: {needed} messages; sent: {sent}; ratio {sent / needed:.2f} (aim: at most {AIM})")
    print(f"delivered to services: {delivered}, {delivered / sent:.2f} per message")
    return 0 if sent <= AIM * needed else 1


def submit(client: Tidegate, jobs: int) -> list[str]:
    """Jobs that run for longer than this takes, or wait."""
    body = {"jobs": [{"spec": {"command": ["sleep", "3600"]}}] * jobs}
    ids: list[str] = client.call("POST", "/v1/jobs/batch", json=body)["ids"]
    return ids


async def quiet(stack: Stack, database: asyncpg.Connection) -> Counted:
    """What is counted once nothing has been stored for a while, nothing is unsent, and nothing waits for a service."""
    deadline = time.monotonic() + _WAITED_SECONDS
    last, since = None, time.monotonic()
    while last is None or time.monotonic() - since < _QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise SystemExit(f"the stack did not come to rest within {_WAITED_SECONDS} s")
        await asyncio.sleep(1)
        try:
            async with broker(stack) as js:
                now = await counted(js)
        except (OSError, TimeoutError, nats.errors.Error):
            last = None
            continue
        unsent = [await database.fetchval(UNSENT.format(table=table)) for table in _OUTBOXES]
        if now != last or now.waiting or any(unsent):
            last, since = now, time.monotonic()
    return last


@asynccontextmanager
async def broker(stack: Stack) -> AsyncIterator[JetStreamContext]:
    """The administrator's connection."""
    password = (stack.home / "secrets" / "admin.nats.password").read_text()
    connection = await nats.connect(
        stack.endpoint["nats_url"],
        user="admin",
        password=password,
        inbox_prefix="_INBOX_admin",
        allow_reconnect=False,
        error_cb=_raised_anyway,
        max_reconnect_attempts=1,
    )
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


async def _raised_anyway(_: Exception) -> None:
    """Without this nats-py prints a traceback of what `connect` raises."""


async def counted(js: JetStreamContext) -> Counted:
    """Read the streams' and consumers' numbers."""
    stored = delivered = waiting = 0
    for stream in await js.streams_info():
        if stream.config.name in _STREAMS:
            stored += stream.state.last_seq
    for name, consumer in CONSUMERS.items():
        if consumer.stream in _STREAMS:
            info = await js.consumer_info(consumer.stream, name)
            delivered += info.delivered.consumer_seq if info.delivered is not None else 0
            waiting += (info.num_pending or 0) + (info.num_ack_pending or 0)
    return Counted(stored, delivered, waiting)


if __name__ == "__main__":
    sys.exit(main())
