"""One Slurm cluster: submit, look, cancel. Every answer that is none is a value of its own, never an absence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from shared.backends.slurm import accounting, nodes, orders, queue, refusals, text
from shared.backends.slurm.answers import Done, NotDone, Refused, Submitted, Unclear
from shared.backends.slurm.ids import parse_id
from shared.backends.slurm.nodes import Capacity, Inventory
from shared.backends.slurm.orders import Order
from shared.backends.slurm.rows import AccountingRow, Listed, NoAnswer, QueueRow
from shared.backends.slurm.run import Commands, DidNotRun, Ran
from shared.backends.slurm.submitted import parse_submitted

Row = TypeVar("Row", QueueRow, AccountingRow)

# Longer lists of names do not fit one argument (128 KiB); then all are asked for, and chosen from here.
_NAMES_LENGTH_MAX = 100_000
# So far the cluster's clock may be ahead of this one's.
_CLOCKS_APART = timedelta(days=1)
# What scancel is told of a job that there is no more.
_OVER = frozenset({"unknown", "ended"})


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """Above what the commands take by themselves to give up: 9 to 18 s with Slurm's MessageTimeout of 10 s."""

    submit_seconds: float = 40.0
    query_seconds: float = 30.0
    accounting_seconds: float = 60.0
    act_seconds: float = 30.0


def least_environment() -> dict[str, str]:
    """What Slurm's commands need of this process's environment, and no more."""
    return {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}


class SlurmClient:
    """Safe to share between tasks; holds no connection and no state.

    `prefix` runs the commands elsewhere (`("ssh", "login1")`); `cluster` names one of several that they know; `user`
    is whose jobs are looked at, where it is not who runs the commands. `time_zone` is the cluster's, and matters only
    where a wrapper prints local times although epoch seconds are asked for.
    """

    def __init__(
        self,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        cluster: str | None = None,
        user: str | None = None,
        time_zone: str | None = None,
        time_outs: TimeOuts | None = None,
        submissions_at_once: int = 8,
    ) -> None:
        self._commands = Commands(tuple(prefix), dict(least_environment() if environment is None else environment))
        self._cluster = [f"--clusters={cluster}"] if cluster else []
        self._user = user
        self._zone = ZoneInfo(time_zone) if time_zone else None
        self._time_outs = time_outs or TimeOuts()
        self._submissions = asyncio.Semaphore(submissions_at_once)

    @property
    def submit_seconds(self) -> float:
        """So long after a submission was begun it is over, whatever has become of it."""
        return self._time_outs.submit_seconds

    async def submit(self, order: Order) -> Submitted | Refused | Unclear:
        """Hand over one job. A refusal is only what Slurm documents as one; after all else there may be a job."""
        async with self._submissions:
            ran = await self._commands.run(
                ["sbatch", *self._cluster, *orders.arguments(order)],
                seconds=self._time_outs.submit_seconds,
                stdin=order.script.encode(errors="surrogateescape"),
                fenced=True,
            )
        if isinstance(ran, DidNotRun):
            return Unclear(ran.why)
        printed = parse_submitted(ran.stdout)
        if ran.code == 0:
            if printed is None:
                return Unclear(f"sbatch named no job: {ran.complaint}")
            return Submitted(printed.id, printed.cluster)
        refused = refusals.refusal(ran.stderr)
        if refused is None or printed is not None:
            return Unclear(f"sbatch ended with {ran.code}: {ran.complaint}")
        sentence, what = refused
        return Refused(sentence, what.word, what.passing)

    async def queue(self, names: Collection[str] | None = None) -> Listed[QueueRow] | NoAnswer:
        """Every job that the controller still knows, or those of these names: one squeue, whatever their number."""
        separator, asked = text.separator(), _within_bounds(names)
        ran = await self._ask(
            ["squeue", *self._cluster, *queue.arguments(separator, self._user, asked)], self._time_outs.query_seconds
        )
        if isinstance(ran, NoAnswer):
            return ran
        return _named(queue.parse(ran.stdout, separator, self._zone), names)

    async def accounting(
        self, since: datetime, until: datetime | None = None, names: Collection[str] | None = None
    ) -> Listed[AccountingRow] | NoAnswer:
        """Every segment that touches the time between, or all since: one sacct. Rows lag some seconds behind.

        With `names` those rows are missing that do not have theirs yet (`half_filled`).
        """
        if until is None:
            until = datetime.now(UTC) + _CLOCKS_APART
        if since.tzinfo is None or until.tzinfo is None:
            raise ValueError("accounting is asked between two times with a zone")
        separator, asked = text.separator(), _within_bounds(names)
        ran = await self._ask(
            ["sacct", *self._cluster, *accounting.arguments(separator, since, until, self._user, asked)],
            self._time_outs.accounting_seconds,
        )
        if isinstance(ran, NoAnswer):
            return NoAnswer(accounting.DISABLED_SENTENCE) if accounting.DISABLED in ran.why else ran
        return _named(accounting.parse(ran.stdout, separator, self._zone), names)

    async def cancel(
        self,
        ids: Sequence[str],
        *,
        name: str | None = None,
        state: str | None = None,
        signal: str | None = None,
        batch: bool = False,
        full: bool = False,
    ) -> Done | NotDone:
        """End jobs, or send them a signal: to the batch script (`batch`), to it and all steps (`full`), else to steps.

        With `name` only jobs that still have it: an id may be another job's by now; with `state` only those in it. A
        job that has ended is no error.
        """
        options = [
            *([f"--signal={signal}"] if signal else []),
            *(["--batch"] if batch else []),
            *(["--full"] if full else []),
            *([f"--name={name}"] if name is not None else []),
            *([f"--state={state}"] if state is not None else []),
        ]
        return await self._act(["scancel", *self._cluster, *options, *_ids(ids)], no_error=_OVER)

    async def requeue(self, id: str) -> Done | NotDone:
        """Back into the queue, as a new segment under the same id; refused for what was submitted with --no-requeue."""
        return await self._act(["scontrol", *self._cluster, "requeue", *_ids([id])])

    async def ping(self) -> Done | NoAnswer:
        """Does a controller answer? Asks it for nothing else, so a healthy one may still be slow to list its jobs."""
        ran = await self._ask(["scontrol", *self._cluster, "ping"], self._time_outs.query_seconds)
        if isinstance(ran, NoAnswer):
            return ran
        return Done() if " is UP" in ran.stdout else NoAnswer(f"no controller is up: {ran.complaint}")

    async def nodes(self) -> Inventory | NoAnswer:
        """All nodes with their states and what they have: one sinfo."""
        separator = text.separator()
        ran = await self._ask(["sinfo", *self._cluster, *nodes.arguments(separator)], self._time_outs.query_seconds)
        return ran if isinstance(ran, NoAnswer) else nodes.parse(ran.stdout, separator)

    async def capacity(self) -> Listed[Capacity] | NoAnswer:
        """What each partition has of each gres, and of `cpu`: one sinfo."""
        inventory = await self.nodes()
        if isinstance(inventory, NoAnswer):
            return inventory
        return Listed(nodes.capacity(inventory), inventory.skipped)

    async def _ask(self, command: Sequence[str], seconds: float) -> Ran | NoAnswer:
        ran = await self._commands.run(command, seconds=seconds, variables={"SLURM_TIME_FORMAT": "%s"})
        if isinstance(ran, DidNotRun):
            return NoAnswer(ran.why)
        if ran.code != 0:
            return NoAnswer(f"{command[0]} ended with {ran.code}: {ran.complaint}")
        return ran

    async def _act(self, command: Sequence[str], no_error: frozenset[str] = frozenset()) -> Done | NotDone:
        ran = await self._commands.run(command, seconds=self._time_outs.act_seconds)
        if isinstance(ran, DidNotRun):
            return NotDone(ran.why, None)
        words = refusals.answer_words(ran.stderr)
        if ran.code == 0 or (words and no_error.issuperset(words)):
            return Done()
        word = next((word for word in words if word and word not in no_error), None)
        return NotDone(f"{command[0]} ended with {ran.code}: {ran.complaint}", word)


def _ids(ids: Sequence[str]) -> list[str]:
    """Nothing else becomes an argument, and there is one: else scancel takes every job that its filters let through."""
    if not ids:
        raise ValueError("no job is named")
    for id in ids:
        if parse_id(id) is None:
            raise ValueError(f"{id!r} is no id of a Slurm job")
    return list(ids)


def _within_bounds(names: Collection[str] | None) -> Collection[str] | None:
    if names is None or sum(len(name) + 1 for name in names) > _NAMES_LENGTH_MAX or any("," in name for name in names):
        return None
    return names


def _named(answer: Listed[Row] | NoAnswer, names: Collection[str] | None) -> Listed[Row] | NoAnswer:
    """Only the rows of these names, also where a command was not, or could not be, told them."""
    if names is None or isinstance(answer, NoAnswer):
        return answer
    wanted = frozenset(names)
    return Listed(tuple(row for row in answer.rows if row.name in wanted), answer.skipped)
