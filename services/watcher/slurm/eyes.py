"""A Slurm cluster as the observer sees it: one squeue a look, and one sacct where the queue does not say all.

Accounting is asked before the queue (see `sighting`). What the queue does not show any more is looked for in
accounting, and before it is lost in the runner's record; only what none of them ends counts as absent.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from opentelemetry.metrics import Meter

from services.watcher.domain import Finding
from services.watcher.slurm.attempts import Attempts, Seen
from services.watcher.slurm.blindness import Blindness, Sight
from services.watcher.slurm.joining import Rows, by_name
from services.watcher.slurm.past import Past
from services.watcher.slurm.sighting import is_over, segments
from services.watcher.store import Expected, Term
from shared.backends.clusters import SlurmCluster
from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.names import submission_name
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import NoAnswer
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

_ONLY: Final = "s1"
_LONG_AGO: Final = timedelta(days=8)
"""So far back accounting is asked about who is not owed, or not any more."""


class Tables(Protocol):
    """What is kept of a cluster between two observers, and whose end is owed."""

    async def expected(self, cluster: str) -> Sequence[Expected]:
        """Whose end is not known yet."""

    async def sight(self, cluster: str) -> Sight:
        """What was kept last."""

    async def keep_sight(self, term: Term, sight: Sight) -> None:
        """For who observes next. Raises LeaseLost where somebody does already."""


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
        tables: Tables,
        *,
        deployment: str,
        restored_since: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        """`restored_since`: while a restore is under way the time since when anything may be unknown here."""
        self._cluster = cluster
        self._client = client
        self._clock = clock
        self._log = log
        self._tables = tables
        self._deployment = deployment
        self._restored_since = restored_since
        self._skipped = meter.create_counter("tidegate_unread_rows", description="Rows of Slurm that cannot be read")
        self._new_attempts: Callable[[], Attempts] = lambda: Attempts(
            root, log, meter, stuck_seconds=settings.stuck_seconds, accounting=settings.accounting
        )
        self._new_past: Callable[[], Past] = lambda: Past(client, enabled=settings.accounting)
        self._alive: frozenset[str]
        self._queued: frozenset[str]
        self._begin(Sight(), (), clock.now())

    @property
    def cluster(self) -> str:
        """As the file of clusters names it."""
        return self._cluster

    async def begin(self) -> None:
        """As the protocol says: who was alive, and when the controller was away, is known from the tables."""
        sight, owed = await self._tables.sight(self._cluster), await self._tables.expected(self._cluster)
        self._begin(sight, owed, self._clock.now())

    async def keep(self, term: Term) -> None:
        """As the protocol says."""
        await self._tables.keep_sight(term, self._blindness.sight)

    async def observe(self) -> Look:
        """As the protocol says."""
        at = self._clock.now()
        self._owed = self._by_name(await self._tables.expected(self._cluster))
        restored_since = self._restored_since()
        why_not = await self._past.ask(self._wanted(), at, everything_since=restored_since)
        queue = await self._client.queue()
        if isinstance(queue, NoAnswer):
            self._blindness.close_eyes(at)
            return Look(False, self._attempts.seen, queue.why)
        self._skipped.add(len(queue.skipped))
        names = by_name(queue.rows, self._past.rows, self._deployment)
        self._queued, self._asked_at = frozenset(name for name, rows in names.items() if rows.queue), at
        self._past.keep(self._queued | self._owed.keys() if restored_since is None else names.keys())
        accounted_for = frozenset(name for name, rows in names.items() if rows.queue or _has_ended(rows))
        if problem := self._blindness.broken(self._alive, accounted_for, at):
            return Look(False, self._attempts.seen, problem)
        self._blindness.open_eyes(at)
        self._alive = frozenset(name for name, rows in names.items() if rows.alive)
        await asyncio.to_thread(
            self._attempts.read,
            names,
            self._owed,
            self._blindness.times,
            at,
            unread=queue.skipped,
            orphans_too=restored_since is not None,
        )
        return Look(why_not is None, self._attempts.seen, why_not)

    async def find(self, job: str, attempt: int) -> Sequence[Seen]:
        """As the protocol says: accounting is asked where it was not yet, and the runner's record is looked at."""
        known = [one for one in self._attempts.seen if (one.job, one.attempt) == (job, attempt)]
        name, one = next(((name, one) for name, one in self._owed.items() if one.key == (job, attempt)), (None, None))
        if known or name is None or one is None:
            return known
        if not self._past.has_answered(name):
            if why := await self._past.ask_at_once(name, one.accepted_at):
                raise CouldNotAsk(why)
            if _has_ended(Rows((), self._past.of(name))):
                raise CouldNotAsk(f"accounting has an end of {name}, which the next look will tell")
        alone = await asyncio.to_thread(self._attempts.alone, name, one)
        return [] if alone is None else [alone]

    def found(self, sightings: Iterable[Seen]) -> list[Finding]:
        """As the protocol says."""
        return [finding for one in sightings for finding in one.told]

    def is_alive(self, sighting: Seen) -> bool:
        """As the protocol says."""
        return sighting.alive

    def _begin(self, sight: Sight, owed: Sequence[Expected], at: datetime) -> None:
        """As if this one had not looked yet."""
        self._blindness = Blindness(sight)
        self._attempts = self._new_attempts()
        self._past = self._new_past()
        self._owed = self._by_name(owed)
        self._alive = frozenset(name for name, one in self._owed.items() if one.last_seen_at is not None)
        self._queued = frozenset[str]()
        self._asked_at = at

    def _by_name(self, owed: Sequence[Expected]) -> Mapping[str, Expected]:
        return {one.submission or submission_name(self._deployment, one.job, one.attempt, _ONLY): one for one in owed}

    def _wanted(self) -> Mapping[str, datetime]:
        """Whom accounting is asked about: who should have been in the last answer of the queue and was not, and of whom
        it knows more than the queue. Since when it may have them."""
        more = self._attempts.wanting
        known = {
            name: one.accepted_at
            for name, one in self._owed.items()
            if name in more or (name not in self._queued and one.accepted_at <= self._asked_at)
        }
        return known | dict.fromkeys(more - self._owed.keys(), self._asked_at - _LONG_AGO)


def _has_ended(rows: Rows) -> bool:
    found = segments(None, rows.accounting)
    return bool(found) and is_over(found[-1])
