"""A Slurm cluster as the observer sees it: one squeue a look, and one sacct where something of ours is not in it.

Accounting is asked before the queue (see `sighting`). What the queue does not show any more is looked for in
accounting, then in the runner's record; only what none of them ends counts as absent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.metrics import Meter

from services.watcher.domain import Finding
from services.watcher.slurm.blindness import Blindness
from services.watcher.slurm.findings import findings, self_reported, stuck
from services.watcher.slurm.joining import Rows, by_name, sighting, tenant_in, witnesses
from services.watcher.slurm.sighting import Sighting, is_over, of_claim, segments
from services.watcher.store import Expected
from shared.backends.clusters import SlurmCluster
from shared.backends.local import layout
from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.names import submission_name
from shared.backends.slurm import records
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import AccountingRow, NoAnswer, QueueRow
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

_ACCOUNTING_EVERY: Final = timedelta(seconds=5)
_BEFORE_ACCEPTANCE: Final = timedelta(hours=1)
_ACCOUNTING_SETTLES: Final = timedelta(seconds=60)
"""So long accounting may lag behind before the runner's record alone is believed."""
_ONLY: Final = "s1"


@dataclass(frozen=True, slots=True)
class Seen:
    """One submission, with what is to be told of it."""

    submission: str
    job: str
    attempt: int
    alive: bool
    told: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """As `Observed` says."""

    complete: bool
    submissions: tuple[Seen, ...]
    problem: str | None = None


class SlurmEyes:
    """One cluster. Only one replica looks at a time, and one look is over before the next begins."""

    def __init__(
        self,
        cluster: str,
        settings: SlurmCluster,
        client: SlurmClient,
        root: str,
        clock: Clock,
        log: Log,
        meter: Meter,
        *,
        deployment: str,
        owed: Callable[[], Awaitable[Sequence[Expected]]],
    ) -> None:
        """`owed`: whose end is not known yet."""
        self._cluster = cluster
        self._settings = settings
        self._client = client
        self._root = root
        self._clock = clock
        self._log = log
        self._deployment = deployment
        self._owed = owed
        self._unknown = meter.create_counter("tidegate_unknown_words", description="Words that the mapping lacks")
        self._complained: set[str] = set()
        self._blindness = Blindness()
        self._accounted: tuple[AccountingRow, ...] = ()
        self._accounting_at: datetime | None = None
        self._alive: frozenset[str] = frozenset()
        self._seen: Mapping[str, Seen] = {}
        self._absent_since: dict[str, datetime] = {}
        self._stuck_since: dict[str, datetime] = {}

    @property
    def cluster(self) -> str:
        """As the file of clusters names it."""
        return self._cluster

    async def observe(self) -> Look:
        """As the protocol says."""
        at = self._clock.now()
        owed = {self._name(one): one for one in await self._owed()}
        missing = [one for name, one in owed.items() if name not in self._alive]
        why_not = await self._ask_accounting(missing, at)
        queue = await self._client.queue()
        if isinstance(queue, NoAnswer):
            self._blindness.close_eyes(at)
            return Look(False, tuple(self._seen.values()), queue.why)
        names = by_name(queue.rows, self._accounted, self._deployment)
        alive = frozenset(name for name, rows in names.items() if any(map(_lives, rows.queue)))
        if problem := self._blindness.broken(self._alive, frozenset(names), at):
            return Look(False, tuple(self._seen.values()), problem)
        self._blindness.open_eyes(at)
        self._alive = alive
        seen = await asyncio.to_thread(self._read, names, owed, at)
        # The same object where nothing has changed: then it is not told again.
        self._seen = {name: old if (old := self._seen.get(name)) == one else one for name, one in seen.items()}
        return Look(why_not is None, tuple(self._seen.values()), why_not)

    async def find(self, job: str, attempt: int) -> Sequence[Seen]:
        """As the protocol says; a look says all of it, so that there is nothing more on record."""
        return [one for one in self._seen.values() if (one.job, one.attempt) == (job, attempt)]

    def found(self, sightings: Iterable[Seen]) -> list[Finding]:
        """As the protocol says."""
        return [finding for one in sightings for finding in one.told]

    def is_alive(self, sighting: Seen) -> bool:
        """As the protocol says."""
        return sighting.alive

    def _name(self, one: Expected) -> str:
        return one.submission or submission_name(self._deployment, one.job, one.attempt, _ONLY)

    async def _ask_accounting(self, missing: Sequence[Expected], at: datetime) -> str | None:
        """Ask where somebody is missing, at most every few seconds; why it could not be asked, if so."""
        if not self._settings.accounting:
            return None
        if not missing:
            self._accounted = ()
            return None
        if self._accounting_at is not None and timedelta(0) <= at - self._accounting_at < _ACCOUNTING_EVERY:
            return None
        self._accounting_at = at
        found = await self._client.accounting(min(one.accepted_at for one in missing) - _BEFORE_ACCEPTANCE)
        if isinstance(found, NoAnswer):
            return found.why
        self._accounted = found.rows
        return None

    def _read(self, names: Mapping[str, Rows], owed: Mapping[str, Expected], at: datetime) -> dict[str, Seen]:
        """What is to be told of everybody who is shown, and of those who are owed and not shown."""
        seen: dict[str, Seen] = {}
        for name in [*names, *(name for name in owed if name not in names)]:
            rows, one = names.get(name, Rows()), owed.get(name)
            tenant = one.tenant if one is not None else tenant_in(rows)
            if tenant is None or (one is None and not rows.queue):
                continue
            if (known := self._seen_of(name, rows, one, tenant, at)) is not None:
                seen[name] = known
        for since in (self._absent_since, self._stuck_since):
            for name in since.keys() - seen.keys() - owed.keys():
                del since[name]
        return seen

    def _seen_of(self, name: str, rows: Rows, one: Expected | None, tenant: str, at: datetime) -> Seen | None:
        shown = sighting(name, rows, tenant, records.Records())
        if shown is None or len({row.id for row in rows.queue}) > 1 or is_over(shown.last):
            known = self._records(name, tenant)
            shown = sighting(name, rows, tenant, known) or shown
        else:
            known = records.Records()
        if shown is not None and (shown.alive or is_over(shown.last)):
            self._absent_since.pop(name, None)
            self._note_words(shown)
            told = self._stuck(shown, at) or findings(shown, self._blindness.times)
            return Seen(name, shown.job, shown.attempt, shown.alive, told)
        if one is None:
            return None
        absent_since = self._absent_since.setdefault(name, at)
        if not self._settings.accounting or at - absent_since >= _ACCOUNTING_SETTLES:
            return _alone(name, one, tenant, known)
        return None

    def _stuck(self, shown: Sighting, at: datetime) -> tuple[Finding, ...]:
        """Its end, where it has waited for too long for what will never come."""
        if not shown.alive or (end := stuck(shown, at)) is None:
            self._stuck_since.pop(shown.name, None)
            return ()
        since = self._stuck_since.setdefault(shown.name, at)
        return (end,) if at - since >= timedelta(seconds=self._settings.stuck_seconds) else ()

    def _records(self, name: str, tenant: str) -> records.Records:
        parsed = submission_parts(name)
        try:
            return records.read(layout.attempt_directory(self._root, tenant, parsed[0], parsed[1]))
        except (OSError, ValueError) as error:
            raise CouldNotAsk(f"the runner's records of {name} could not be read: {error}") from error

    def _note_words(self, shown: Sighting) -> None:
        for segment in shown.segments:
            if segment.state is None and segment.word and segment.word not in self._complained:
                self._unknown.add(1, {"word": segment.word[:40]})
                self._complained.add(segment.word)
                self._log.warning("a word of Slurm is unknown: the job keeps its state", word=segment.word)


def submission_parts(name: str) -> tuple[str, int]:
    """(job, attempt) of a name that was parsed before."""
    _, job, attempt, _ = name.split(".")
    return job, int(attempt[1:])


def _alone(name: str, one: Expected, tenant: str, known: records.Records) -> Seen | None:
    """By the runner's record alone."""
    last = witnesses(known)[-1:] if known.holder is not None else ()
    if not last or known.holder is None:
        return None
    shown = of_claim(name, one.job, one.attempt, tenant, known.holder.slurm_job_id, one.accepted_at, last[0])
    end = self_reported(shown, last[0])
    return None if end is None else Seen(name, one.job, one.attempt, False, (end,))


def _lives(row: QueueRow) -> bool:
    found = segments(row, ())
    return not found or not is_over(found[-1])
