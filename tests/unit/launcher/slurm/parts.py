"""A cluster's client that answers as a test says, and the rows, records and requests to go with it."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics

from services.launcher.backend import Target
from services.launcher.slurm.backend import SlurmBackend
from shared.backends.clusters import Coretype, SlurmCluster
from shared.backends.local.messages import LaunchRequest
from shared.backends.slurm.answers import Done, NotDone, Refused, Submitted, Unclear
from shared.backends.slurm.orders import Order
from shared.backends.slurm.records import Claim, Exit, Records, Run, Started
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer, QueueRow
from shared.runtime.clock import FixedClock
from shared.runtime.logs import Log

NOON: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
JOB: Final = "j" + "0" * 26
NAME: Final = f"tidegate.{JOB}.a1.s1"
TARGET: Final = Target(NAME, "acme", JOB, 1)
SETTLE: Final = timedelta(seconds=60)
CLUSTER: Final = SlurmCluster(
    coretypes={
        "cpu": Coretype(partition="debug", cpus=2, memory_mib=512),
        "gpu": Coretype(partition="gpu", constraint="a100", gres="gpu:a100", qos="high"),
    },
    account="general",
    accounts={"acme": "acme-gpu"},
    allow_root=True,
)
Answer = Submitted | Refused | Unclear


def at(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def a_row(state: str = "PENDING", *, id: str = "7", submitted: float = 0, token: str = "t1", **more: Any) -> QueueRow:
    """A job of the submission's name, in the queue."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("partition", "start", "end", "suspended_since", "run_time", "exit", "nodes", "tres")
    )
    comment = f"tidegate/1 {token} acme"
    given: dict[str, Any] = {"name": NAME, "comment": comment, "user": "root", "reason": None, "restarts": 0, **nothing}
    return QueueRow(id=id, state=state, submitted_at=at(submitted), **given | more)


def accounted(state: str = "COMPLETED", *, id: str = "7", submitted: float = 0, **more: Any) -> AccountingRow:
    """A job of the submission's name, in accounting."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("comment", "user", "cancelled_by", "exit", "reason", "start", "end", "elapsed")
    )
    nothing |= dict.fromkeys(("suspended", "tres"))
    return AccountingRow(id=id, name=NAME, state=state, submitted_at=at(submitted), **{**nothing, "nodes": "n1"} | more)


def a_run(restart: int = 0, *, id: str = "7", token: str = "t1") -> Run:
    """One of the batch script."""
    return Run(NAME, token, JOB, 1, "acme", id, restart, "n1")


def claimed(*restarts: int, started: Sequence[int] = (), never_ran: Sequence[int] = (), **run: str) -> Records:
    """Records of who has the claim."""
    runs = {restart: a_run(restart, **run) for restart in {*restarts, *started, *never_ran}}
    return Records(
        tuple(Claim(runs[restart], at(5)) for restart in restarts),
        {restart: Started(runs[restart], at(6)) for restart in started},
        exits={
            restart: Exit(runs[restart], False, 75, None, "revoked", None, at(6), timedelta(0), None)
            for restart in never_ran
        },
    )


def a_request(number: int = 0, **more: Any) -> LaunchRequest:
    """A launch of a job of its own."""
    job = f"j{number:026d}"
    given: dict[str, Any] = {"command": ("true",), "coretype": "cpu", "not_after": at(180), "environment": {"KEY": "x"}}
    return LaunchRequest(f"tidegate.{job}.a1.s1", "acme", job, "e1", **given | more)


async def at_once() -> None:
    """Do not wait."""


class FakeClient:
    """In place of `SlurmClient`."""

    submit_seconds = 40.0

    def __init__(self) -> None:
        self.rows: list[QueueRow] = []
        self.past: list[AccountingRow] | NoAnswer = []
        self.unread: tuple[str, ...] = ()
        self.silent: str | None = None
        self.answers: Callable[[Order], Answer | None] = lambda order: Submitted("7", None)
        """None never answers."""
        self.submitted: list[Order] = []
        self.cancelled: list[tuple[str, str | None]] = []
        """Ids, each with the state in which alone, or the signal."""
        self.looks = 0
        self.accounts: list[list[str]] = []
        self.before_the_answer: Callable[[], Any] = at_once

    async def submit(self, order: Order) -> Answer:
        self.submitted.append(order)
        answer = self.answers(order)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer

    async def queue(self, names: Collection[str] | None = None) -> Listed[QueueRow] | NoAnswer:
        self.looks += 1
        shown = tuple(self.rows)
        await self.before_the_answer()
        return NoAnswer(self.silent) if self.silent else Listed(shown, self.unread)

    async def accounting(
        self, since: datetime, until: datetime | None = None, names: Collection[str] | None = None
    ) -> Listed[AccountingRow] | NoAnswer:
        self.accounts.append(list(names or ()))
        return self.past if isinstance(self.past, NoAnswer) else Listed(tuple(self.past))

    async def cancel(self, ids: Sequence[str], *, state: str | None = None, **how: Any) -> Done | NotDone:
        assert how["name"]
        for id in ids:
            self.cancelled.append((id, how.get("signal") or state))
            if "signal" not in how:
                self.rows = [replace(row, state="CANCELLED") if row.id == id else row for row in self.rows]
        return Done()


class Stand:
    """A backend over a folder, a clock that stands still, and a client that answers as it is told."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.client = FakeClient()
        self.clock = FixedClock(NOON)
        self.root = folder
        self.backend = SlurmBackend(
            "hpc",
            CLUSTER.model_copy(update=settings),
            self.client,  # type: ignore[arg-type] # it has what is used of it
            str(folder),
            self.clock,
            Log("tidegate"),
            metrics.get_meter("test"),
            deployment="tidegate",
        )

    def directory(self, job: str = JOB) -> Path:
        """The attempt's, made if it is not there."""
        made = self.root / "work" / "acme" / job / "a1"
        made.mkdir(parents=True, exist_ok=True)
        return made
