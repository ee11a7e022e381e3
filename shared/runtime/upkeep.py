"""Keeps streams and consumers there: a broker whose store was lost gets them back without anybody's help."""

import asyncio
import signal
from typing import Any, Final

import nats.errors
from nats.js.errors import APIError

from shared.runtime import logs
from shared.runtime.broker import Broker
from shared.runtime.errors import LoginRefused
from shared.runtime.logs import Log
from shared.runtime.settings import BrokerSettings
from shared.runtime.topology import ensure

_EVERY_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.5


async def keep(settings: BrokerSettings, stop: asyncio.Event, log: Log) -> None:
    """Create and update them whenever the broker is (back) there, and every 5 s, until `stop` is set. `LoginRefused`
    when the broker does not let the administrator in."""
    password = settings.nats_password.get_secret_value()
    broker = Broker(settings.nats_url, settings.nats_user, password, service="topology", log=log)
    due = asyncio.Event()

    async def back() -> None:
        due.set()

    broker.on_reconnect(back)
    stopping = asyncio.create_task(stop.wait())  # nats-py loses cancellations, so nothing of it is cancelled
    connecting = asyncio.create_task(broker.connect())
    await asyncio.wait({stopping, connecting}, return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        return
    await connecting
    assert broker.failed is not None, "connect() sets it"
    try:
        while not (stop.is_set() or broker.failed.done()):
            due.clear()
            pause = await _look(broker, log)
            waking = asyncio.create_task(due.wait())
            either: list[asyncio.Future[Any]] = [waking, stopping, broker.failed]
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
        if not stop.is_set():
            raise LoginRefused(broker.failed.result())
    finally:
        stopping.cancel()
        await broker.close()


async def _look(broker: Broker, log: Log) -> float:
    """Ensure once; after how many seconds to look again."""
    if not broker.connected:
        return _AGAIN_SECONDS
    try:
        for line in await ensure(broker.client.jetstream()):
            log.info("topology changed", what=line)
    except (nats.errors.Error, APIError) as error:
        log.warning("topology not ensured yet", error=str(error) or type(error).__name__)
        return _AGAIN_SECONDS
    return _EVERY_SECONDS


async def run(settings: BrokerSettings) -> None:
    """`keep` as a process, until SIGTERM or SIGINT."""
    logs.configure("topology", "INFO", "text", settings.secrets())
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await keep(settings, stop, Log("tidegate"))
