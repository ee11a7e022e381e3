"""Starts the processes of a stack in order, keeps them running, and stops them in the opposite order.

What it runs is data: stages of processes, started together, the next stage once all of this one are ready. A stage may
begin with errands, which run to their end first and must succeed.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from infra.embedded.home import Home
from infra.embedded.keeper import Backoff, Keeper
from infra.embedded.logs import last_lines, rotate
from infra.embedded.processes import Identity, Process, start
from infra.embedded.state import State

READY_SECONDS = 60.0
_ERRAND_SECONDS = 600.0
_ROTATE_SECONDS = 5.0


class StackError(Exception):
    """The stack cannot start; the sentence names what failed, and its log."""


@dataclass(frozen=True)
class Stage:
    """Errands first, one after the other; then the processes, together."""

    processes: tuple[Process, ...] = ()
    errands: tuple[Process, ...] = ()
    must_be_ready: bool = True
    """False lets the stack stand with a process that is not ready: it is kept, and shown."""


class Supervisor:
    """One stack, from its start to its end."""

    def __init__(
        self,
        home: Home,
        stages: Sequence[Stage],
        *,
        state: State | None = None,
        running: Mapping[str, Identity] | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        backoff: Backoff | None = None,
    ) -> None:
        """`state` is what is known before the start; `running` what outlived the last supervisor, watched as it is."""
        self._home = home
        self._stages = stages
        self._running = running or {}
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._backoff = backoff or Backoff()
        self._kept: list[list[tuple[Keeper, asyncio.Task[None]]]] = []
        self._stop = asyncio.Event()
        me = Identity.of(os.getpid())
        assert me is not None
        self._state = state or State(me)

    async def run(self) -> None:
        """Start, stand until SIGTERM or SIGINT, stop. Raises `StackError` where the start failed, with nothing left."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        self._write()
        rotation = asyncio.create_task(self._rotate())
        try:
            await self._unless_stopped(self._start())
            await self._stop.wait()
        except StackError as error:
            self._state = replace(self._state, problem=str(error))
            raise
        finally:
            rotation.cancel()
            self._state = replace(self._state, ready=False)
            self._on_stop()
            await self._end()
            self._write()

    async def _start(self) -> None:
        for stage in self._stages:
            for errand in stage.errands:
                await self._do(errand)
            keepers = [self._keeper(process) for process in stage.processes]
            self._kept.append([(keeper, asyncio.create_task(keeper.keep())) for keeper in keepers])
            if stage.must_be_ready:
                await _all_ready_or_fail(keepers)
                continue
            self._state = replace(self._state, servers_ready=True)
            self._write()
            try:
                await asyncio.wait_for(_all_ready(keepers), READY_SECONDS)
            except TimeoutError:
                self._say("; ".join(_lateness(keeper) for keeper in keepers if not keeper.ready.is_set()))
                await _all_ready(keepers)
        self._state = replace(self._state, ready=True)
        self._on_ready()
        self._write()
        self._say("ready")

    async def _do(self, errand: Process) -> None:
        child = start(errand)
        identity = Identity.of_child(child)
        try:
            await asyncio.wait_for(identity.gone(), _ERRAND_SECONDS)
        except TimeoutError:
            raise StackError(
                f"{errand.name} did not end in {_ERRAND_SECONDS:g} s. Its log, {errand.log}, ends with:\n"
                f"{_end_of(errand.log)}"
            ) from None
        finally:
            # It still runs where the start was given up.
            await asyncio.to_thread(identity.end, errand.stop_signal, errand.stop_seconds)
        if code := child.wait():
            raise StackError(
                f"{errand.name} failed with exit code {code}. Its log, {errand.log}, ends with:\n{_end_of(errand.log)}"
            )

    async def _end(self) -> None:
        """Stop what runs, last stage first; every wait is bounded."""
        for stage in reversed(self._kept):
            for keeper, _ in stage:
                keeper.stop()
            await asyncio.gather(*(task for _, task in stage))

    async def _unless_stopped(self, start_up: Coroutine[None, None, None]) -> None:
        """Run the start, but give up at once when told to stop."""
        starting, stopping = asyncio.create_task(start_up), asyncio.create_task(self._stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
        await asyncio.gather(starting, return_exceptions=self._stop.is_set())

    def _keeper(self, process: Process) -> Keeper:
        running = self._running.get(process.name)
        return Keeper(process, changed=self._write, say=self._say, backoff=self._backoff, running=running)

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(_ROTATE_SECONDS)
            for log in self._home.logs.glob("*.log"):
                await asyncio.to_thread(rotate, log)

    def _write(self) -> None:
        entries = tuple(keeper.entry() for stage in self._kept for keeper, _ in stage)
        self._state = replace(self._state, processes=entries)
        try:
            self._state.write(self._home)
        except OSError as error:  # a full disk must not end the stack
            self._say(f"cannot write the state: {error}")

    def _say(self, sentence: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        print(f"{moment} supervisor: {sentence}", file=sys.stderr, flush=True)


async def _all_ready(keepers: Sequence[Keeper]) -> None:
    await asyncio.gather(*(keeper.ready.wait() for keeper in keepers))


async def _all_ready_or_fail(keepers: Sequence[Keeper]) -> None:
    """Wait for all; `StackError` where one takes too long, or keeps ending before it ever answered."""
    waits = [asyncio.create_task(_all_ready(keepers)), *(asyncio.create_task(one.hopeless.wait()) for one in keepers)]
    try:
        await asyncio.wait(waits, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if hopeless := [keeper for keeper in keepers if keeper.hopeless.is_set()]:
        raise StackError("\n".join(_told(keeper, f"cannot be started: it {keeper.ending}") for keeper in hopeless))
    if late := [keeper for keeper in keepers if not keeper.ready.is_set()]:
        raise StackError("\n".join(_lateness(keeper) for keeper in late))


def _lateness(keeper: Keeper) -> str:
    return _told(keeper, f"is not ready after {READY_SECONDS:g} s: {keeper.why_not}")


def _told(keeper: Keeper, what: str) -> str:
    process = keeper.process
    return f"{process.name} {what}. Its log, {process.log}, ends with:\n{_end_of(process.log)}"


def _end_of(log: Path) -> str:
    return "\n".join(f"  {line}" for line in last_lines(log, 15)) or "  (nothing)"
