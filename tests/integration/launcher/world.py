"""A launcher's parts over a real database and a real local backend, and words for what the tests do with them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from opentelemetry import metrics

from services.launcher.backend import Backend as LauncherBackend
from services.launcher.ending import Ending
from services.launcher.handlers import JobEvents
from services.launcher.launching import Launching
from services.launcher.local import LocalBackend
from services.launcher.settings import LauncherSettings
from services.launcher.store import Store
from services.launcher.sweep import Sweep
from shared.backends.local.client import LocalClient
from shared.contracts.queries import SpecsAnswer, SpecsAsked
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import AnyFact
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.database import Database
from shared.runtime.logs import Log
from shared.runtime.messages import Delivery
from shared.runtime.specs import Specs
from tests.integration.backends.local.harness import Backend, eventually
from tests.integration.launcher.story import Job
from tests.patience import PATIENCE_SECONDS

LEDGER = ("sh", "-c", "echo $TIDEGATE_JOB_ID >> ledger")
"""A command whose every run leaves a line in its working directory."""
LEASE_SECONDS = 120
"""Of a launch: on a busy machine the backend may be asked long after a launcher has decided to."""
AFTER_THE_LEASE = timedelta(seconds=LEASE_SECONDS + 1)


def settings_for(root: Path, **given: Any) -> LauncherSettings:
    """Settings of a launcher that is put together by hand; the logins are not used."""
    return LauncherSettings(
        **{"database_url": "x", "nats_url": "x", "nats_user": "launcher", "nats_password": "x", "local_root": root}
        | {"launch_lease_seconds": LEASE_SECONDS}
        | given
    )


class Launcher:
    """One replica's parts, driven step by step."""

    def __init__(
        self,
        world: "World",
        replica: str,
        *,
        backend: LocalClient | None = None,
        on: LauncherBackend | None = None,
        store: type[Store] = Store,
        **settings: Any,
    ) -> None:
        self.settings = settings_for(world.backend.root, replica=replica, **settings)
        here = LocalBackend(backend or world.backend.client, self.settings.deployment)
        self.backend: LauncherBackend = on or here
        client = self.backend
        meter, log = metrics.get_meter("test"), Log("tidegate")
        self.store = store(world.database, replica=replica, epoch=lambda: world.epoch)
        self.events = JobEvents(self.store, self.settings, world.clock, to_launch=lambda: None, to_end=lambda: None)
        self.launching = Launching(
            self.store,
            client,
            Specs(world.ask),
            world.clock,
            log,
            meter,
            lease_seconds=self.settings.launch_lease_seconds,
            stop_grace_seconds=self.settings.stop_grace_seconds,
            restoring=lambda: world.restoring,
        )
        self.ending = Ending(self.store, client, world.clock, log, meter)
        self.sweep = Sweep(self.store, client, log, meter)

    async def handle(self, *deliveries: Delivery) -> None:
        """As the consumer does."""
        await self.events.on_jobs(list(deliveries))

    async def start(self) -> None:
        """What a replica does first."""
        await self.store.take_over(self.events._clock.now(), at_start=True)

    async def launch(self, *deliveries: Delivery) -> None:
        """Handle these, and hand over what is due."""
        if deliveries:
            await self.handle(*deliveries)
        await self.launching.once()

    async def end(self, *deliveries: Delivery) -> None:
        """Handle these, and look once at what is to end."""
        if deliveries:
            await self.handle(*deliveries)
        await self.ending.once()


class World:
    """A database, a backend, and the specs that the api would tell."""

    cluster: str | None = None
    """Where its jobs are admitted to."""

    def __init__(self, database: Database, backend: Backend) -> None:
        self.database = database
        self.backend = backend
        self.clock: Clock = SystemClock()
        self.specs: dict[str, JobSpec] = {}
        self.asked: list[SpecsAsked] = []
        self.epoch = 1
        self.restoring = False
        self._heard = 0

    async def ask(self, question: SpecsAsked) -> SpecsAnswer:
        """`api.specs`."""
        self.asked.append(question)
        return SpecsAnswer(specs={digest: self.specs[digest] for digest in question.digests if digest in self.specs})

    def launcher(self, replica: str = "one", **how: Any) -> Launcher:
        """A replica."""
        return Launcher(self, replica, **how)

    async def job(self, *command: str, **spec: Any) -> Job:
        """A job whose inputs are staged; the event that asks for its launch is its newest."""
        job = Job(*(command or LEDGER), **spec)
        await self.stage(job)
        job.staged(self.cluster)
        return job

    async def stage(self, job: Job) -> None:
        """Make the working directory of its current attempt."""
        self.specs[job.spec.digest()] = job.spec
        await self.backend.client.make_attempt_directory(job.record.tenant, job.id, job.record.attempt)
        (self.backend.root / job.directory).mkdir()

    async def facts(self, *jobs: Job) -> list[AnyFact]:
        """What was told since the last time, applied to these jobs."""
        rows = await self.database.fetch(
            "SELECT id, key, subject, body FROM outbox WHERE id > $1 ORDER BY id", self._heard
        )
        self._heard = max([self._heard, *(row["id"] for row in rows)])
        return [fact for job in jobs for fact in job.hear(rows)]

    async def row(self, job: Job, attempt: int = 1) -> Any:
        """The launcher's row."""
        return await self.database.fetchrow("SELECT * FROM launches WHERE job = $1 AND attempt = $2", job.id, attempt)

    async def backup(self) -> list[Any]:
        """The launcher's rows as they are now."""
        return [row["row"] for row in await self.database.fetch("SELECT to_jsonb(launches) AS row FROM launches")]

    async def restore(self, backup: list[Any]) -> None:
        """Take the launcher's rows back, in a new epoch: what the lost time has told is not heard any more."""
        await self.database.execute("DELETE FROM launches")
        await self.database.execute(
            "INSERT INTO launches SELECT * FROM jsonb_populate_recordset(NULL::launches, $1)", backup
        )
        self._heard = await self.database.fetchval("SELECT coalesce(max(id), 0) FROM outbox")
        self.epoch += 1
        self.restoring = True

    def ledger(self, job: Job, attempt: int = 1) -> list[str]:
        """The runs of an attempt, as its command has noted them."""
        path = self.backend.root / f"work/{job.record.tenant}/{job.id}/a{attempt}/e1/ledger"
        return path.read_text().split() if path.exists() else []

    def submission(self, job: Job, attempt: int = 1) -> str:
        """Its name at the backend."""
        return f"tidegate.{job.id}.a{attempt}.s1"

    async def until_written(self, job: Job, name: str) -> None:
        """Wait until the job's command has written this file."""
        path = self.backend.root / job.directory / name
        await eventually(path.exists, f"{path} is written")

    async def until_ended(self, *jobs: Job) -> None:
        """Wait until the backend has recorded the ends of these jobs' current attempts."""
        waiting = {self.submission(job, job.record.attempt) for job in jobs}
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while waiting:
            ended = {seen.submission for seen in self.backend.observer.observe().submissions if seen.exit is not None}
            waiting -= ended
            assert asyncio.get_running_loop().time() < deadline, f"no end of {waiting}"
            await asyncio.sleep(0.01)

    async def until_sealed(self, launcher: Launcher, *jobs: Job) -> list[AnyFact]:
        """Let the launcher look until these jobs' attempts are sealed; the facts told meanwhile."""
        told: list[AnyFact] = []
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            await launcher.end()
            told += await self.facts(*jobs)
            sealed = {fact.job for fact in told if fact.kind == "launcher_sealed"}
            if sealed >= {job.id for job in jobs}:
                return told
            assert asyncio.get_running_loop().time() < deadline, (
                f"not sealed: {[dict(await self.row(j)) for j in jobs]}"
            )
            await asyncio.sleep(0.01)


def kinds(facts: Sequence[AnyFact]) -> list[str]:
    """Their kinds, in the order in which they were told."""
    return [fact.kind for fact in facts]
