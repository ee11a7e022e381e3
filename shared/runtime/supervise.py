"""Keeps loops running: an error is logged and counted, and the loop starts again after a growing pause."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from opentelemetry import metrics

from shared.runtime.errors import Unavailable
from shared.runtime.logs import Log

_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 2.0
_HEALTHY_SECONDS: Final = 10.0
_errors = metrics.get_meter("tidegate").create_counter(
    "tidegate_loop_errors", description="Times that a background loop or tick raised and was started again"
)


async def keep_running(name: str, body: Callable[[], Awaitable[None]], log: Log, stop: asyncio.Event) -> None:
    """Run `body` until it returns or `stop` is set; when it raises, run it again."""
    pause = _FIRST_PAUSE_SECONDS
    while not stop.is_set():
        begun = time.monotonic()
        try:
            return await body()
        except Exception as error:
            if time.monotonic() - begun > _HEALTHY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _report(name, error, log, pause)
            await pause_unless(stop, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    return None


async def tick(name: str, seconds: float, body: Callable[[], Awaitable[None]], log: Log, stop: asyncio.Event) -> None:
    """Run `body` at once and then `seconds` after each end, until `stop` is set; errors stretch the pause."""
    extra = 0.0
    while not stop.is_set():
        try:
            await body()
            extra = 0.0
        except Exception as error:
            extra = min(max(extra * 2, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            _report(name, error, log, seconds + extra)
        await pause_unless(stop, seconds + extra)


async def pause_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, or return early when `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


async def finish(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Let them end by themselves for a while, then cancel them."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def calm_the_collector() -> None:
    """Records are large trees without cycles: at the default thresholds the collector, which finds nothing in them,
    took a quarter of the time under load."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _report(name: str, error: Exception, log: Log, pause: float) -> None:
    _errors.add(1, {"loop": name})
    if isinstance(error, Unavailable):
        log.warning("loop interrupted", loop=name, error=str(error), again_in_seconds=pause)
    else:
        log.error("loop failed", error=error, loop=name, again_in_seconds=pause)
