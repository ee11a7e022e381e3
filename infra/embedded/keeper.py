"""One process, kept running: started, asked whether it is ready, started again when it dies, stopped when told."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from infra.embedded.probes import why_not_ready
from infra.embedded.processes import Identity, Process, start
from infra.embedded.state import Entry, Word

_PROBE_SECONDS = 0.05
_HOPELESS_DEATHS = 4


@dataclass(frozen=True)
class Backoff:
    """How long to wait before starting again what died: doubling, and the first again after it has run well."""

    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    well_after_seconds: float = 60.0

    def seconds(self, deaths_in_a_row: int) -> float:
        """`deaths_in_a_row` counts from 1."""
        return min(self.first_seconds * 2.0 ** min(deaths_in_a_row - 1, 30), self.longest_seconds)


class Keeper:
    """Keeps one process running until told to stop."""

    def __init__(
        self,
        process: Process,
        *,
        changed: Callable[[], None],
        say: Callable[[str], None],
        backoff: Backoff,
        running: Identity | None = None,
    ) -> None:
        self.process = process
        self.ready = asyncio.Event()
        """Set once it has answered for the first time."""
        self.hopeless = asyncio.Event()
        """Set once it has ended several times without ever having answered; it is started again all the same."""
        self.ending: str = ""
        """How it ended last."""
        self.why_not: str = "not started yet"
        self._changed = changed
        self._say = say
        self._backoff = backoff
        self._running = running
        self._state: Word = "starting"
        self._identity: Identity | None = running
        self._restarts = 0
        self._stop = asyncio.Event()

    def entry(self) -> Entry:
        """What `ps` shows."""
        return Entry(
            name=self.process.name,
            identity=self._identity,
            state=self._state,
            restarts=self._restarts,
            started_at=self._identity.started_at() if self._identity else None,
            log=str(self.process.log),
            ready=self.process.ready,
            outlives=self.process.outlives,
            stop_signal=int(self.process.stop_signal),
            stop_seconds=self.process.stop_seconds,
        )

    async def keep(self) -> None:
        """Run until `stop`; a process that was running already is watched as it is."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while not self._stop.is_set():
            started = loop.time()
            ending = self.ending = await self._one_life()
            if self._stop.is_set():
                break
            deaths = 1 if loop.time() - started >= self._backoff.well_after_seconds else deaths + 1
            if deaths >= _HOPELESS_DEATHS and not self.ready.is_set():
                self.hopeless.set()
            pause = self._backoff.seconds(deaths)
            self._restarts += 1
            self._identity = None
            self._say(f"{self.process.name} {ending}; starting it again in {pause:g} s ({self.process.log})")
            self._turn("restarting")
            await self._stopped_within(pause)
        if self._identity is not None and self._identity.alive():
            return  # it outlives the stack, and is shown so
        self._identity = None
        self._turn("stopped")

    def stop(self) -> None:
        """Ask it to end; `keep` returns when it has."""
        self._stop.set()

    async def _one_life(self) -> str:
        """From its start to its end; says how it ended."""
        if self._running is not None:
            child, identity = None, self._running
            self._running = None
        else:
            try:
                child = start(self.process)
            except (OSError, subprocess.SubprocessError) as error:
                return f"could not be started ({error})"
            identity = Identity.of_child(child)
        self._identity = identity
        self._turn("starting")
        await self._until_end(identity)
        if child is None or (code := child.poll()) is None:
            return "ended"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def _until_end(self, identity: Identity) -> None:
        """Watch for readiness and for the end; when told to stop, ask it to end, and kill it when it takes too long."""
        end = asyncio.create_task(identity.gone())
        readiness = asyncio.create_task(self._watch_readiness())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({end, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not end.done() and not self.process.outlives:
                identity.send(self.process.stop_signal)
                await asyncio.wait({end}, timeout=self.process.stop_seconds)
                if not end.done():
                    self._say(f"{self.process.name} did not end in {self.process.stop_seconds:g} s: killed")
                    identity.send(signal.SIGKILL)
                    await end
        finally:
            for task in (readiness, stopping, end):
                task.cancel()

    async def _watch_readiness(self) -> None:
        """Ask until it answers, each time it was started."""
        address = self.process.ready
        while address is not None:
            why_not = await asyncio.to_thread(why_not_ready, address)
            if why_not is None:
                break
            self.why_not = why_not
            await asyncio.sleep(_PROBE_SECONDS)
        self.ready.set()
        self._turn("running")

    def _turn(self, state: Word) -> None:
        self._state = state
        self._changed()

    async def _stopped_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
