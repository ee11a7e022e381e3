"""A broker that loses its store: copies of it, the loss, and what is told of it."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.js import JetStreamContext
from pydantic import SecretStr

from shared.runtime.logs import Log
from shared.runtime.outbox import Outgoing
from shared.runtime.service import Service
from shared.runtime.settings import BrokerSettings
from shared.runtime.upkeep import keep
from tests.integration.runtime.stores import (
    Stores,
    bodies_of,
    eventually,
)


@asynccontextmanager
async def kept(stores: Stores) -> AsyncIterator[None]:
    """With a process beside it that makes streams and consumers anew."""
    password = SecretStr(stores.nats.password("admin"))
    settings = BrokerSettings(nats_url=stores.nats.url, nats_user="admin", nats_password=password)
    stop = asyncio.Event()
    keeping = asyncio.create_task(keep(settings, stop, Log("tidegate")))
    try:
        yield
    finally:
        stop.set()
        await keeping


def copy_of(stores: Stores, folder: Path) -> Path:
    """The store as it is now; the server stands still meanwhile, so that no file goes while it is copied."""
    os.kill(stores.nats.pid, signal.SIGSTOP)
    try:
        return Path(shutil.copytree(stores.nats.store, folder / "copy"))
    finally:
        os.kill(stores.nats.pid, signal.SIGCONT)


async def lose(stores: Stores, copy: Path | None) -> None:
    """Kill the broker and start it with the copy, or with nothing."""
    stores.nats.kill()
    shutil.rmtree(stores.nats.store)
    if copy is not None:
        shutil.copytree(copy, stores.nats.store)
    await asyncio.to_thread(stores.nats.start)


def facts(service: str, kind: str, names: list[str]) -> list[Outgoing]:
    return [Outgoing(f"facts.v1.{service}.{kind}", name, "job", name.encode()) for name in names]


async def all_stored(js: JetStreamContext, bodies: list[str], stream: str) -> None:
    """Wait until the stream holds each of these."""

    async def there() -> bool:
        try:
            return set(bodies) <= set(await bodies_of(js, stream))
        except nats.errors.Error:
            return False  # the broker or the stream is not back yet

    await eventually(there, f"{stream} to hold all")


def tells(service: Service) -> list[str]:
    """The streams whose loss the service was told of."""
    told: list[str] = []

    @service.on_store_lost
    async def remember(stream: str) -> None:
        told.append(stream)

    return told
