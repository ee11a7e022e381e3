"""Eyes on a cluster that shows what a test says, and words for what they see."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from opentelemetry import metrics

from services.watcher.slurm.blindness import Sight
from services.watcher.slurm.eyes import Look, SlurmEyes
from services.watcher.slurm.eyes import Tables as KeptTables
from services.watcher.store import Expected, Term
from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.local.names import submission_name
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer, QueueRow
from shared.runtime.clock import FixedClock
from shared.runtime.logs import Log
from tests.unit.watcher.slurm.rows import NOON

TENANT = "acme"


def job(number: int) -> str:
    """The id of one of many jobs."""
    return f"j{number:026d}"


def name(number: int) -> str:
    """Its submission."""
    return submission_name("tidegate", job(number), 1, "s1")


def row(number: int, of: QueueRow) -> QueueRow:
    """The row of that job in the queue."""
    return replace(of, id=str(27 + number), name=name(number), comment=f"tidegate/1 t{number} {TENANT}")


def past(number: int, of: AccountingRow) -> AccountingRow:
    """Its row in accounting."""
    return replace(of, id=str(27 + number), name=name(number))


class Shown(SlurmClient):
    """What the cluster shows; each question is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[QueueRow] = []
        self.skipped: tuple[str, ...] = ()
        self.ended: list[AccountingRow] = []
        self.no_queue: str | None = None
        self.no_accounting: str | None = None
        self.asked: list[tuple[datetime, frozenset[str] | None]] = []

    async def queue(self, names: Collection[str] | None = None) -> Listed[QueueRow] | NoAnswer:
        assert names is None, "one question for all"
        return NoAnswer(self.no_queue) if self.no_queue else Listed(tuple(self.rows), self.skipped)

    async def accounting(
        self, since: datetime, until: datetime | None = None, names: Collection[str] | None = None
    ) -> Listed[AccountingRow] | NoAnswer:
        self.asked.append((since, None if names is None else frozenset(names)))
        if self.no_accounting:
            return NoAnswer(self.no_accounting)
        return Listed(tuple(row for row in self.ended if names is None or row.name in names))


class Tables:
    """What is owed, and what an observer left."""

    def __init__(self) -> None:
        self.owed: list[Expected] = []
        self.left = Sight()

    async def expected(self, cluster: str) -> Sequence[Expected]:
        return list(self.owed)

    async def sight(self, cluster: str) -> Sight:
        return self.left

    async def keep_sight(self, term: Term, sight: Sight) -> None:
        self.left = sight

    def owe(self, *numbers: int, last_seen_at: datetime | None = None, submitted: bool = True) -> None:
        """Nobody knows how these ended."""
        for number in numbers:
            submission = name(number) if submitted else None
            self.owed.append(Expected(job(number), 1, TENANT, submission, NOON, last_seen_at, 0))

    def know(self, *numbers: int) -> None:
        """Their ends were told."""
        self.owed = [one for one in self.owed if one.job not in map(job, numbers)]


class Looking:
    """Eyes, with all that they look at."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.client, self.tables, self.clock = Shown(), Tables(), FixedClock(NOON)
        self.settings = SlurmCluster(coretypes={"gpu": Coretype()}, **settings)
        self.restored_since: datetime | None = None
        self.kept: KeptTables | None = None
        """Where the eyes are to keep what they leave, if not in `tables`."""
        self.eyes = self.another()

    def another(self) -> SlurmEyes:
        """Those of another observer."""
        return SlurmEyes(
            "hpc",
            self.settings,
            self.client,
            str(self.root),
            self.clock,
            Log("tidegate"),
            metrics.get_meter("test"),
            self.kept or self.tables,
            deployment="tidegate",
            restored_since=lambda: self.restored_since,
        )

    async def look(self, after: float = 2) -> Look:
        """So many seconds later."""
        self.clock.advance(timedelta(seconds=after))
        return await self.eyes.observe()

    async def told(self, after: float = 2) -> dict[int, list[tuple[str, Mapping[str, Any]]]]:
        """By number, kind and fields of what a look has to tell."""
        look = await self.look(after)
        return {
            int(one.job[1:]): [(finding.kind, finding.fact) for finding in self.eyes.found([one])]
            for one in look.submissions
        }

    async def alive(self, after: float = 2) -> set[int]:
        """Who is alive."""
        look = await self.look(after)
        return {int(one.job[1:]) for one in look.submissions if self.eyes.is_alive(one)}

    def directory(self, number: int) -> Path:
        """Of that job's attempt."""
        directory = self.root / "work" / TENANT / job(number) / "a1"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def recorded(self, number: int, seconds: float, code: int = 0, *, restart: int = 0, **more: Any) -> None:
        """The runner's claim of that job's Slurm job, and its record of an end so long after noon."""
        directory = self.directory(number)
        run = {"submission": name(number), "token": "t1", "job": job(number), "attempt": 1, "tenant": TENANT}
        run |= {"slurm_job_id": str(27 + number), "restart": restart, "node": "n1"}
        at_ms = round((NOON + timedelta(seconds=seconds)).timestamp() * 1000)
        end = {"ran": True, "code": code, "signal": None, "reason": None, "started_ms": at_ms - 1000}
        end |= {"ended_ms": at_ms, "duration_ms": 1000}
        if not (directory / "claim").exists():
            (directory / "claim").write_text(json.dumps(run | {"restart": 0, "claimed_ms": at_ms - 1000}))
        (directory / f"exit.{restart}.json").write_text(json.dumps(run | end | more))
