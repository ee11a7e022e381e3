"""A watcher's parts over a real database and a real local backend, and words for what the tests do with them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from opentelemetry import metrics

from services.watcher.handlers import JobEvents
from services.watcher.observing import Observing
from services.watcher.store import Store
from shared.backends.local.observer import Observer
from shared.backends.local.sightings import LocalState, Observation
from shared.contracts.facts import decode_fact
from shared.lifecycle import facts as f
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.database import Database
from shared.runtime.logs import Log
from shared.runtime.messages import Delivery
from tests.integration.backends.local.harness import Backend
from tests.integration.launcher.story import Job

LOST_AFTER = timedelta(seconds=60)


class Watcher:
    """One process's parts, driven look by look."""

    def __init__(self, world: "World", observe: Callable[[], Observation] | None = None) -> None:
        self.store = Store(world.database)
        self.observing = Observing(
            self.store,
            observe or Observer(world.backend.client.root).observe,
            world.backend.client,
            world.clock,
            Log("tidegate"),
            metrics.get_meter("test"),
            lost_after=LOST_AFTER,
        )
        self.events = JobEvents(self.store, world.clock, lambda: None)

    async def handle(self, *deliveries: Delivery) -> None:
        """As the consumer does."""
        await self.events.on_jobs(list(deliveries))

    async def look(self) -> bool:
        """Look once; whether something is alive."""
        return await self.observing.once()


class World:
    """A database, a backend, and what was told."""

    def __init__(self, database: Database, backend: Backend) -> None:
        self.database = database
        self.backend = backend
        self.clock: Clock = SystemClock()
        self._heard = 0

    def watcher(self, observe: Callable[[], Observation] | None = None) -> Watcher:
        """A process."""
        return Watcher(self, observe)

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
        deadline = asyncio.get_running_loop().time() + 30
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
