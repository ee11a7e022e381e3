"""A launcher's parts over a real Slurm cluster, stand-ins for sbatch, and words for what the tests do with them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics

from infra.slurm.cluster import Cluster
from services.launcher.slurm.backend import SlurmBackend
from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.local.layout import make_root
from shared.backends.slurm.client import SlurmClient, TimeOuts
from shared.runtime.database import Database
from shared.runtime.logs import Log
from tests.databases import FreshDatabase, ServiceDatabase
from tests.integration.backends.local.harness import Backend
from tests.integration.launcher.story import Job
from tests.integration.launcher.world import Launcher, World
from tests.patience import PATIENCE_SECONDS

NAME: Final = "hpc"
SETTLE_SECONDS: Final = 1
TIME_OUTS: Final = TimeOuts(submit_seconds=20)
HASTY: Final = TimeOuts(submit_seconds=2, query_seconds=2, act_seconds=2, accounting_seconds=10)
"""For what will not be answered."""
SUBMITS_AND_HANGS: Final = "{sbatch} && exec sleep 1000"
HANGS: Final = "exec sleep 1000"
HANGS_AND_SUBMITS: Final = 'while ! [ -e "$here/goes_on" ]; do sleep 0.1; done; exec {sbatch}'


class Ahead:
    """This machine's clock, set forward."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return datetime.now(UTC) + self._by


def clusters(**settings: Any) -> SlurmCluster:
    """The cluster as a deployment's file would describe it."""
    coretypes = {
        "local": Coretype(partition="debug"),
        "gpu": Coretype(partition="debug", gres="gpu"),
        "nowhere": Coretype(partition="nosuch"),
        "lowrq": Coretype(partition="lowrq"),
    }
    given = {"coretypes": coretypes, "allow_root": True, "settle_seconds": SETTLE_SECONDS}
    return SlurmCluster(**given | settings)


class SlurmWorld(World):
    """A database and a cluster, whose jobs have their directories below one root."""

    cluster = NAME

    def __init__(self, database: Database, login: ServiceDatabase, cluster: Cluster, folder: Path) -> None:
        super().__init__(database, Backend(folder / "root"))
        self.login = login
        make_root(self.backend.client.root)
        self.slurm = cluster
        self._folder = folder
        self._stand_ins = 0

    def replica(
        self,
        name: str = "one",
        *,
        time_outs: TimeOuts = TIME_OUTS,
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> Launcher:
        """A launcher on the cluster."""
        asks = SlurmClient(
            environment=environment or self.slurm.environment,
            time_outs=time_outs,
            submissions_at_once=settings.get("submissions_at_once", 8),
        )
        backend = SlurmBackend(
            NAME,
            clusters(**settings),
            asks,
            self.backend.client.root,
            self.clock,
            Log("tidegate"),
            metrics.get_meter("test"),
            deployment="tidegate",
        )
        return Launcher(self, name, on=backend)

    def sbatch_that(self, script: str, *, times: int = 1) -> dict[str, str]:
        """An environment in which sbatch is this script the next `times`, and itself else."""
        self._stand_ins += 1
        here = self.stand_in(self._stand_ins)
        here.mkdir()
        body = script.format(sbatch='/usr/bin/sbatch "$@" >>"$here/printed"')
        text = f"""#!/bin/sh
here={here}
for armed in "$here"/armed.*; do
    if mv "$armed" "$here/passed.${{armed##*.}}" 2>/dev/null; then
        {body}
        exit 1
    fi
done
exec /usr/bin/sbatch "$@"
"""
        (here / "sbatch").write_text(text)
        (here / "sbatch").chmod(0o755)
        for time in range(times):
            (here / f"armed.{time}").touch()
        return dict(self.slurm.environment) | {"PATH": f"{here}:{self.slurm.environment['PATH']}"}

    def stand_in(self, number: int = 1) -> Path:
        """Where the stand-in of this number has its files."""
        return self._folder / f"sbatch{number}"

    def jobs_of(self, job: Job, attempt: int = 1) -> list[str]:
        """The Slurm jobs that have the submission's name, `<id> <state>`, the oldest first."""
        asked = ["squeue", "--noheader", "--states=all", f"--name={self.submission(job, attempt)}", "--format=%i %T"]
        lines = self.slurm.run(asked).stdout.split("\n")
        return sorted((line.strip() for line in lines if line.strip()), key=lambda line: int(line.split()[0]))

    async def successor(self, name: str = "two", **how: Any) -> Launcher:
        """Another replica, once the lease of the first, and the time of its call of sbatch, are over."""
        self.clock = Ahead(timedelta(minutes=10))
        launcher = self.replica(name, **how)
        await launcher.store.take_over(self.clock.now(), at_start=False)
        return launcher

    async def until_passed(self, times: int = 1) -> None:
        """Wait until the first stand-in was called so often."""
        here = self.stand_in()
        await until(lambda: len([*here.glob("passed.*")]) == times, lambda: f"sbatch was not called {times} times")

    def go_on(self) -> None:
        """Let the first stand-in submit, where it waits."""
        (self.stand_in() / "goes_on").touch()

    async def until_jobs(self, job: Job, are: Callable[[list[str]], object]) -> list[str]:
        """Wait until the queue shows this of them."""
        await until(lambda: are(self.jobs_of(job)), lambda: f"{self.jobs_of(job)}")
        return self.jobs_of(job)

    async def until_ran(self, *jobs: Job) -> None:
        """Wait until each has noted a run, and then until the queue shows nothing of them that lives."""
        await until(lambda: all(self.ledger(job) for job in jobs), lambda: f"{[self.ledger(job) for job in jobs]}")
        await self.until_over()

    async def until_over(self) -> None:
        """Wait until the queue has nothing that lives."""
        asked = ["squeue", "--noheader", "--format=%i %T %j %r"]
        await until(lambda: not self.slurm.run(asked).stdout.strip(), lambda: self.slurm.run(asked).stdout)

    async def until_accepted(self, launcher: Launcher, *jobs: Job) -> None:
        """Let the launcher look until it has told of all that they were accepted."""
        told: set[str] = set()
        wanted = {job.id for job in jobs}

        async def accepted() -> bool:
            await launcher.launching.once()
            told.update(fact.job for fact in await self.facts(*jobs) if fact.kind == "accepted")
            return told >= wanted

        await until(accepted, lambda: f"accepted {told} of {wanted}")

    async def waits_for(self, job: Job) -> str:
        """What the launcher's row says that it waits for."""
        return str((await self.row(job))["waits_for"])

    async def until_file(self, job: Job, name: str) -> str:
        """Wait for a file in the job's working directory; what is in it."""
        path = self.backend.root / job.directory / name
        await until(path.exists, lambda: f"no {path}")
        return path.read_text()

    def directory(self, job: Job) -> Path:
        """Of the job's attempt."""
        return (self.backend.root / job.directory).parent


async def until(condition: Callable[[], Any], what: Callable[[], str]) -> None:
    """Wait for what `condition` gives to be true."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert asyncio.get_running_loop().time() < deadline, what()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def slurm_world(fresh: FreshDatabase, cluster: Cluster, folder: Path) -> AsyncIterator[SlurmWorld]:
    """One for a test."""
    made = await fresh("launcher")
    database = Database(made.url, schema="launcher")
    await database.connect()
    try:
        yield SlurmWorld(database, made, cluster, folder)
    finally:
        await database.close()


def said(messages: Sequence[Any], event: str) -> list[dict[str, Any]]:
    """The fields of what was logged as this."""
    return [record.fields for record in messages if record.getMessage() == event]
