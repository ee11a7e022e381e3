"""One service: its stores, its consumers, its queries, its background work, its clean end."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import uvloop
from opentelemetry import metrics

from shared.contracts.subjects import rpc_subject
from shared.runtime import failpoints, logs, telemetry
from shared.runtime.broker import Broker
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.consume import ConsumeLoop, Handler
from shared.runtime.database import Database
from shared.runtime.dead_letters import DeadLetters
from shared.runtime.errors import DatabaseUnavailable, LoginRefused, SettingsError
from shared.runtime.health import Health
from shared.runtime.leases import Lease, Leases
from shared.runtime.logs import Log
from shared.runtime.marks import Marks
from shared.runtime.outbox import OutboxTable, RelaySource
from shared.runtime.relay import Relay, StoreLost
from shared.runtime.rpc import Query, serve
from shared.runtime.settings import ServiceSettings
from shared.runtime.standing import Standing, StandingKeeper
from shared.runtime.stored import Stored
from shared.runtime.supervise import calm_the_collector, finish, keep_running, tick
from shared.runtime.telemetry import with_trace
from shared.runtime.topology import CONSUMERS, stream_of

Work = Callable[[], Awaitable[None]]
H = TypeVar("H", bound=Handler)
Q = TypeVar("Q", bound=Query)
W = TypeVar("W", bound=Work)

_FINISH_SECONDS: Final = 10.0
"""What running batches and ticks have for finishing after SIGTERM; with the rest it stays below 20 s."""
_RELAY_SECONDS: Final = 4.0
_LEASES_SECONDS: Final = 1.0


class Service:
    """What a service is built on. Declare handlers with the decorators, then `main()` (or `lifespan()` under ASGI)."""

    def __init__(
        self,
        name: str,
        settings: ServiceSettings,
        *,
        clock: Clock | None = None,
        relay_source: Callable[[Database], RelaySource] = OutboxTable,
        restores_itself: bool = False,
    ) -> None:
        """With `restores_itself` the service says by `mark_in_step` when a restore is over; without, `api` does."""
        logs.configure(name, settings.log_level, settings.log_format, settings.secrets())
        telemetry.configure(name)
        failpoints.use(name)
        self.name = name
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.log = Log("tidegate")
        self.metrics = metrics.get_meter("tidegate")
        self.db = Database(settings.database_url.get_secret_value(), schema=name, on_enqueued=self._nudge)
        self.broker = Broker(
            settings.nats_url,
            settings.nats_user,
            settings.nats_password.get_secret_value(),
            service=name,
            log=self.log,
        )
        source = relay_source(self.db)
        self._leases = Leases(self.db, settings.replica, self.log)
        leads = self._leases.declare("relay")
        marks = Marks(self.db, source, leads)
        self.relay = Relay(source, marks, leads, self.broker, service=name, log=self.log)
        self._standing = StandingKeeper(
            self.db,
            unsent=marks.count_unsent,
            ask_api=None if restores_itself else lambda: self.call("api", "standing", b""),
            log=self.log,
        )
        self.health = Health(settings.health_port, self._missing)
        self._loops: dict[str, ConsumeLoop] = {}
        self.dead_letters = DeadLetters(self.db, self._loops)
        self._ticks: list[tuple[str, float, Work]] = []
        self._starts: list[Work] = []
        self._stop = asyncio.Event()
        self._began = self._working = False
        self.exit_code = 0
        """What the process is to exit with after its clean end."""
        for method, query in self.dead_letters.queries().items():
            self.rpc(method)(query)
        self.rpc("standing")(self._standing.answer)
        self.every(1)(self._standing.follow)

    @property
    def standing(self) -> Standing:
        """The epoch, and whether a restore is under way: known when the `on_start` work runs, and kept up to date."""
        return self._standing.now

    async def mark_in_step(self) -> None:
        """Say that the restore is over for this service, on all its replicas."""
        await self._standing.mark_in_step()

    def lease(self, name: str) -> Lease:
        """What one replica does for all: tried for from the start on, kept alive, and released at the clean end."""
        return self._leases.declare(name)

    def consume(self, consumer: str, *, batch: int = 200) -> Callable[[H], H]:
        """The handler for a consumer of the topology: it gets 1 to `batch` deliveries, whatever has arrived.

        All are acknowledged after it returns. When it raises, a batch is tried one by one; `Final` and unparsable
        bodies are parked at once, everything else comes again with a growing delay and is parked after `MAX_DELIVER`.
        """
        if consumer not in CONSUMERS:
            raise ValueError(f"no consumer {consumer!r} in the topology; there are {', '.join(CONSUMERS)}")

        def declare(handler: H) -> H:
            self._loops[consumer] = ConsumeLoop(
                CONSUMERS[consumer],
                handler,
                batch=batch,
                broker=self.broker,
                database=self.db,
                parks=self.dead_letters,
                log=self.log,
            )
            return handler

        return declare

    def rpc(self, method: str) -> Callable[[Q], Q]:
        """The handler for a query; what it raises reaches the caller as `RpcError` with that sentence."""

        def declare(handler: Q) -> Q:
            serve(self.broker.faststream, self.name, method, handler, self.log)
            return handler

        return declare

    def every(self, seconds: float) -> Callable[[W], W]:
        """Background work: at once, then `seconds` after each end; an error is logged, counted, and tried again."""

        def declare(work: W) -> W:
            self._ticks.append((getattr(work, "__name__", type(work).__name__), seconds, work))
            return work

        return declare

    def on_store_lost(self, callback: StoreLost) -> StoreLost:
        """Awaited with a stream's name when the broker has lost messages of it that it had acknowledged, on one
        replica, once or more per loss. What this service sent in the last hour is sent again by itself meanwhile."""
        self.relay.on_store_lost(callback)
        return callback

    def on_start(self, work: W) -> W:
        """Run once, after the stores are connected and before anything is consumed or answered."""
        self._starts.append(work)
        return work

    async def call(
        self,
        service: str,
        method: str,
        body: bytes,
        timeout: float = 2.0,  # noqa: ASYNC109 # it bounds the answer and becomes RpcUnavailable, not a cancellation
    ) -> bytes:
        """Ask another service; `RpcUnavailable` when nobody answers, `RpcError` when the answer is an error."""
        return await self.broker.call(rpc_subject(service, method), body, timeout)

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, stream: str | None = None
    ) -> Stored | None:
        """Publish without the outbox. With `stream` it returns once stored there; without, it is at most once."""
        carried = with_trace(headers or {})
        if stream is None:
            await self.broker.publish(subject, body, carried)
            return None
        if stream_of(subject) != stream:
            raise ValueError(f"{subject!r} is stored in {stream_of(subject)}, not in {stream}")
        return await self.broker.store(subject, body, carried)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Connected and working inside the block; the clean end follows it."""
        begun = time.monotonic()
        calm_the_collector()
        self.health.start()
        tasks: list[asyncio.Task[None]] = []
        relaying: list[asyncio.Task[None]] = []
        leasing: list[asyncio.Task[None]] = []
        watching: asyncio.Task[None] | None = None
        try:
            await self._connect()
            await self._standing.load()
            for work in self._starts:
                await work()
            await self.broker.serve()
            await self.relay.listen()
            leasing.append(self._supervised("leases", self._leases.run))
            relaying.append(self._supervised("relay", self.relay.run))
            tasks += [self._supervised(f"consume {name}", loop.run) for name, loop in self._loops.items()]
            tasks += [
                asyncio.create_task(tick(name, seconds, work, self.log, self._stop))
                for name, seconds, work in self._ticks
            ]
            watching = asyncio.create_task(self._watch_broker())
            self._began = self._working = True
            self.log.info("started", seconds=round(time.monotonic() - begun, 3), health_port=self.health.port)
            yield
        finally:
            begun = time.monotonic()
            self._working = False
            if watching is not None:
                watching.cancel()
            self._stop.set()
            for loop in self._loops.values():
                loop.stop()
            await finish(tasks, _FINISH_SECONDS)
            self.relay.stop()
            await finish(relaying, _RELAY_SECONDS)
            self._leases.stop()
            await finish(leasing, _LEASES_SECONDS)
            await self.broker.close()
            await self.db.close()
            self.health.stop()
            self.log.info("stopped", seconds=round(time.monotonic() - begun, 3))

    async def run(self) -> int:
        """Work until SIGTERM or SIGINT, end cleanly, and return the exit code."""
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked.set)
        waiting = asyncio.create_task(asked.wait())
        working = asyncio.create_task(self._work_until(asked))
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._began:
            working.cancel()  # still waiting for a store: there is nothing to finish
        with suppress(asyncio.CancelledError):
            await working
        return self.exit_code

    async def _work_until(self, asked: asyncio.Event) -> None:
        async with self.lifespan():
            await asked.wait()

    def main(self) -> None:
        """Run the service as this process; exits 0 after a clean end."""
        try:
            code = uvloop.run(self.run())
        except (LoginRefused, SettingsError) as refused:
            self.log.error("cannot go on", reason=str(refused))
            code = 1
        except Exception as error:
            self.log.error("cannot go on", error=error)
            code = 1
        sys.exit(code)

    async def _watch_broker(self) -> None:
        """A withdrawn login is not waited out: end cleanly, and let whoever supervises this process see it failed."""
        assert self.broker.failed is not None, "connect() sets it"
        reason = await self.broker.failed
        self.log.error("broker is gone for good", reason=reason)
        self.exit_code = 1
        signal.raise_signal(signal.SIGTERM)

    async def _connect(self) -> None:
        pause = 0.1
        while True:
            try:
                await self.db.connect()
                break
            except DatabaseUnavailable as error:
                self.log.warning("waiting for the database", error=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
        await self.broker.connect()

    async def _missing(self) -> list[str]:
        missing = [] if self.broker.connected else ["broker: not connected"]
        try:
            await self.db.ping()
        except DatabaseUnavailable as error:
            missing.append(f"database: {error}")
        return missing if self._working or missing else ["start: not finished"]

    def _supervised(self, name: str, body: Work) -> asyncio.Task[None]:
        return asyncio.create_task(keep_running(name, body, self.log, self._stop), name=name)

    def _nudge(self) -> None:
        self.relay.nudge()
