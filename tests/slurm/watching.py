"""Eyes on a real cluster, the jobs that they see, and words for what the tests do with them."""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentelemetry import metrics

from infra.slurm.cluster import Cluster
from services.launcher.backend import Target
from services.launcher.slurm.backend import SlurmBackend
from services.watcher.slurm.attempts import Seen
from services.watcher.slurm.blindness import Sight
from services.watcher.slurm.eyes import SlurmEyes
from services.watcher.store import Expected, Term
from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.local.layout import attempt_directory, make_root
from shared.backends.local.messages import LaunchKind, LaunchRequest
from shared.backends.local.names import submission_name
from shared.backends.slurm import records
from shared.backends.slurm.client import SlurmClient, TimeOuts
from shared.runtime.clock import SystemClock
from shared.runtime.logs import Log
from tests.patience import PATIENCE_SECONDS
from tests.slurm.jobs import submit

TENANT = "acme"
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One that was given to the cluster: as an attempt, its submission, and as the cluster knows it."""

    job: str
    name: str
    slurm_id: str = ""


@dataclass
class Owed:
    """Whose end the watcher owes, without a database."""

    jobs: list[Expected] = field(default_factory=list)
    left: Sight = field(default_factory=Sight)

    async def expected(self, cluster: str) -> list[Expected]:
        return list(self.jobs)

    async def sight(self, cluster: str) -> Sight:
        return self.left

    async def keep_sight(self, term: Term, sight: Sight) -> None:
        self.left = sight


class Watching:
    """A launcher's and a watcher's side of one cluster."""

    def __init__(self, cluster: Cluster, folder: Path, *, time_outs: TimeOuts | None = None, **settings: Any) -> None:
        self.cluster = cluster
        self.root = str(folder / "root")
        make_root(self.root)
        self.owed = Owed()
        # Of its own: what other tests have left in the queue is strangers'.
        self.deployment = f"w{secrets.token_hex(4)}"
        given = {"coretypes": {"gpu": Coretype(gres="gpu")}, "allow_root": True, "may_requeue": True}
        self.settings = SlurmCluster(**given | settings)
        self._client = SlurmClient(environment=cluster.environment, time_outs=time_outs)
        log, meter = Log("tidegate"), metrics.get_meter("test")
        self.backend = SlurmBackend(
            "hpc",
            self.settings,
            SlurmClient(environment=cluster.environment),
            self.root,
            SystemClock(),
            log,
            meter,
            deployment=self.deployment,
        )
        self.eyes = self.observer()

    def observer(self, **settings: Any) -> SlurmEyes:
        """Another one, of a cluster that is configured otherwise."""
        changed = self.settings.model_copy(update=settings)
        log, meter = Log("tidegate"), metrics.get_meter("test")
        clock, tables = SystemClock(), self.owed
        return SlurmEyes("hpc", changed, self._client, self.root, clock, log, meter, tables, deployment=self.deployment)

    async def launch(self, script: str, *, gpus: int = 1, time_limit_seconds: int = 600) -> Job:
        """An attempt that runs a shell script, started as the launcher does."""
        job = self._new()
        os.makedirs(f"{self.directory(job)}/{job.job}")
        request = LaunchRequest(
            submission=job.name,
            tenant=TENANT,
            run=job.job,
            directory=job.job,
            command=("sh", "-c", script),
            coretype="gpu",
            gpus=gpus,
            time_limit_seconds=time_limit_seconds,
        )
        [answer] = await self.backend.launch([request])
        assert answer.kind is LaunchKind.ACCEPTED, answer
        return self._expect(replace(job, slurm_id=answer.ref or ""))

    def sbatch(self, script: str, *options: str) -> Job:
        """A job with such a name that nobody's runner runs."""
        job = self._new()
        named = (f"--job-name={job.name}", f"--comment=tidegate/1 t1 {TENANT}")
        return self._expect(replace(job, slurm_id=submit(self.cluster, script, *named, *options)))

    def _new(self) -> Job:
        job = f"j{secrets.token_hex(8)}"
        return Job(job, submission_name(self.deployment, job, 1, "s1"))

    def _expect(self, job: Job) -> Job:
        self.owed.jobs.append(Expected(job.job, 1, TENANT, job.name, datetime.now(UTC), None, 0))
        return job

    async def look(self, eyes: SlurmEyes | None = None) -> Mapping[str, Seen]:
        """What a look shows, by job; a whole one."""
        look = await (eyes or self.eyes).observe()
        assert look.complete, look.problem
        return {seen.job: seen for seen in look.submissions}

    async def until_told(
        self, job: Job, kind: str, when: Callable[[Fields], object] = lambda fields: True, eyes: SlurmEyes | None = None
    ) -> Fields:
        """Look until a fact about a job is told that is as it should be, whatever cannot be asked meanwhile."""
        looks, told = eyes or self.eyes, list[Fields]()

        async def is_told() -> bool:
            seen = [one for one in (await looks.observe()).submissions if one.job == job.job]
            told.extend(one.fact for one in looks.found(seen) if one.kind == kind and when(one.fact))
            return bool(told)

        await _until(is_told)
        return told[0]

    async def end(self, job: Job, eyes: SlurmEyes | None = None) -> Fields:
        """How it ended."""
        return await self.until_told(job, "exited", eyes=eyes)

    async def revoke(self, job: Job) -> None:
        """As the launcher does before it seals an attempt, until nothing of it is left."""

        async def nothing_left() -> bool:
            return await self.backend.revoke([Target(job.name, TENANT, job.job, 1)]) == [()]

        await _until(nothing_left)

    def let_go(self, job: Job) -> None:
        """A script that waits for the file `go` goes on."""
        Path(self.directory(job), job.job, "go").touch()

    def never_seen(self) -> None:
        """One that is owed and is nowhere."""
        self._expect(self._new())

    def directory(self, job: Job) -> str:
        """Of the attempt."""
        return attempt_directory(self.root, TENANT, job.job, 1)

    def recorded(self, job: Job) -> records.Records:
        """What the runner has recorded."""
        return records.read(self.directory(job))

    async def until_recorded(self, job: Job) -> records.Exit:
        """The runner's own record of its end."""

        async def recorded() -> bool:
            return bool(self.recorded(job).exits)

        await _until(recorded)
        exits = self.recorded(job).exits
        return exits[max(exits)]

    def accounted(self, job: Job) -> tuple[datetime, datetime]:
        """Start and end of a job that ended, as the controller has them."""
        asked = ["squeue", "--noheader", "--states=all", f"--jobs={job.slurm_id}", "--Format=StartTime:30,EndTime:30"]
        start, end = self.cluster.run(asked).stdout.split()
        return _moment(start), _moment(end)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
