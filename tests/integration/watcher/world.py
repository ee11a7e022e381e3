"""A watcher's parts over a real database and a real local backend, and words for what the tests do with them."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from opentelemetry import metrics

from services.watcher.handlers import JobEvents
from services.watcher.idling import Idling
from services.watcher.local import LocalEyes
from services.watcher.observing import Observing
from services.watcher.restoring import Restoring
from services.watcher.store import Store
from services.watcher.words import Words
from shared.backends.local.observer import Observer
from shared.backends.local.sightings import LocalState, Observation
from shared.contracts.facts import decode_fact
from shared.lifecycle import facts as f
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.database import Database
from shared.runtime.leases import Lease
from shared.runtime.logs import Log
from shared.runtime.messages import Delivery
from shared.runtime.standing import Standing, mark_in_step, read_standing
from tests.integration.backends.local.harness import Backend
from tests.integration.launcher.story import Job
from tests.patience import PATIENCE_SECONDS

LOST_AFTER = timedelta(seconds=60)


class Watcher:
    """One replica's parts, driven look by look."""

    def __init__(self, world: "World", replica: str, observe: Callable[[], Observation] | None) -> None:
        log, meter = Log("tidegate"), metrics.get_meter("test")
        self.world = world
        self.lease = Lease("observe", replica)
        self.store = Store(world.database)
        self.words = Words(log, meter)
        self.restoring = Restoring(
            self.store,
            world.backend.client,
            self.words,
            log,
            standing=lambda: world.standing,
            in_step=world.mark_in_step,
        )
        self.eyes = LocalEyes(observe or Observer(world.backend.client.root).observe, world.backend.client, self.words)
        self.observing = Observing(
            self.store,
            self.eyes,
            self.restoring,
            world.clock,
            log,
            meter,
            lease=self.lease,
            epoch=lambda: world.standing.epoch,
            lost_after=LOST_AFTER,
        )
        self.idling = Idling(
            self.store,
            world.backend.client.root,
            world.clock,
            log,
            lease=self.lease,
            epoch=lambda: world.standing.epoch,
            warning_seconds=300,
        )
        self.events = JobEvents(self.store, world.clock, lambda: None)

    async def handle(self, *deliveries: Delivery) -> None:
        """As the consumer does."""
        await self.events.on_jobs(list(deliveries))

    async def look(self) -> bool:
        """Keep the lease, or try to take it, and look once; whether something is alive."""
        await self.lease.keep(self.world.keeping)
        return await self.observing.once()

    async def look_for_idle(self) -> None:
        """As it does every 2 s."""
        await self.lease.keep(self.world.keeping)
        await self.idling.once()

    async def keep(self) -> None:
        """As it does every 2 s."""
        await self.lease.keep(self.world.keeping)
        await self.observing.keep()


class World:
    """A database, a backend, and what was told."""

    def __init__(self, database: Database, backend: Backend, keeping: asyncpg.Connection) -> None:
        self.database = database
        self.backend = backend
        self.keeping = keeping
        self.clock: Clock = SystemClock()
        self.standing = Standing(epoch=1, restoring=False, backup_at=None)
        self._heard = 0

    def watcher(self, observe: Callable[[], Observation] | None = None, *, replica: str = "one") -> Watcher:
        """A process; one with the name of an earlier one is that one, started again."""
        return Watcher(self, replica, observe)

    async def hand_over(self) -> None:
        """The lease runs out, as after a kill."""
        await self.database.execute("UPDATE leases SET until = clock_timestamp() - interval '1 second'")

    async def restored(self, epoch: int, backup_at: datetime | None = None) -> None:
        """As `python -m infra.postgres.restored` leaves it."""
        await self.database.execute(
            "UPDATE standing SET epoch = $1, restoring = true, backup_at = $2, restored_at = now()", epoch, backup_at
        )
        self.standing = await read_standing(self.database)

    async def mark_in_step(self) -> None:
        """As the service does."""
        await mark_in_step(self.database, self.standing.epoch)
        self.standing = await read_standing(self.database)

    async def launched(self, *command: str, **how: Any) -> tuple[Job, str]:
        """A job that the backend has accepted, and its submission; its newest event says so."""
        job = Job(*command)
        request = await self.backend.request(job.id, *command, tenant=job.record.tenant, **how)
        job.staged()
        submission = await self.backend.submit(request)
        self.accept(job, submission)
        return job, submission

    def accept(self, job: Job, submission: str) -> None:
        """The launcher's word for it."""
        at = self.clock.now()
        job.apply(
            f.Accepted(
                **job.head("launcher", at),
                segment=f.SegmentKey(submission=submission, created_at=at),
                backend="local",
                cluster="local",
                ref=submission,
            )
        )

    async def ended(self, *command: str, **how: Any) -> tuple[Job, str]:
        """The same, and its end is on record."""
        job, submission = await self.launched(*command, **how)
        await self.backend.until(submission, LocalState.EXITED)
        return job, submission

    async def facts(self) -> list[Any]:
        """What was told since the last time."""
        rows = await self.database.fetch("SELECT id, subject, body FROM outbox WHERE id > $1 ORDER BY id", self._heard)
        self._heard = max([self._heard, *(row["id"] for row in rows)])
        return [decode_fact(row["subject"], row["body"]) for row in rows]

    async def until_told(self, watcher: Watcher, kind: str) -> Any:
        """Look until a fact of this kind is told, and nothing else is."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (told := await self.facts()):
            assert asyncio.get_running_loop().time() < deadline, f"no {kind}"
            await watcher.look()
            await asyncio.sleep(0.01)
        (fact,) = told
        assert fact.kind == kind
        return fact


def blind(problem: str) -> Observation:
    """An observation that could not be made."""
    return Observation(complete=False, submissions=(), problem=problem)
