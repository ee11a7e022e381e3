"""Looking at the backend for all replicas, telling what is new, and noticing what is gone.

One replica observes, under the lease "observe"; what it tells commits only while it has it. The others stand by, and
one of them begins where the tables say that it stood.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Generic

from opentelemetry.metrics import Meter

from services.watcher.absence import LONGEST_GAP, Absences, Key
from services.watcher.domain import Finding
from services.watcher.eyes import Eyes, Observed, S
from services.watcher.restoring import Restoring
from services.watcher.store import Expected, Store
from shared.backends.local.messages import CouldNotAsk
from shared.runtime import failpoints
from shared.runtime.clock import Clock
from shared.runtime.database import Tx
from shared.runtime.leases import Lease, LeaseLost
from shared.runtime.logs import Log

_ABSENCE_SECONDS: Final = 0.5
_TOLD_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Lead:
    """The time for which this replica observes a cluster: one number of the lease, facts told in one epoch."""

    lease: Lease
    number: int
    epoch: int
    cluster: str

    async def check(self, tx: Tx) -> None:
        """As `Term` says."""
        await self.lease.check(tx, self.number)


@dataclass
class Memory(Generic[S]):
    """What is known between two looks of one lead, made anew from the tables by the next."""

    lead: Lead
    absences: Absences
    told: dict[str, S] = field(default_factory=dict)
    last_seen: dict[Key, datetime] = field(default_factory=dict)
    observation: Observed[S] | None = None
    judged_at: datetime | None = None
    problem: str | None = None


class Observing(Generic[S]):
    """Tells what the eyes of one cluster show."""

    def __init__(
        self,
        store: Store,
        eyes: Eyes[S],
        restoring: Restoring,
        clock: Clock,
        log: Log,
        meter: Meter,
        *,
        lease: Lease,
        epoch: Callable[[], int],
        lost_after: timedelta,
        longest_gap: timedelta = LONGEST_GAP,
    ) -> None:
        """`longest_gap`: between two looks further apart than this nobody counts as absent."""
        self._store = store
        self._eyes = eyes
        self._restoring = restoring
        self._clock = clock
        self._log = log
        self._lease = lease
        self._epoch = epoch
        self._lost_after = lost_after
        self._longest_gap = longest_gap
        self._memory: Memory[S] | None = None
        self._blind = meter.create_counter("tidegate_incomplete_observations", description="Looks that were not whole")
        self._told = meter.create_counter("tidegate_sightings_told", description="Facts told about submissions")

    async def once(self) -> bool:
        """Look once and tell what is new, where this replica observes; whether something is alive."""
        try:
            memory = await self._remembered()
            return False if memory is None else await self._look(memory)
        except LeaseLost as lost:
            self._stand_by(str(lost))
            return False

    async def keep(self) -> None:
        """Write down when live attempts were last seen, how long others are absent, and what the eyes have to keep."""
        memory = self._memory
        if memory is None:
            return
        try:
            await self._store.remember(memory.lead, dict(memory.last_seen), memory.absences.counted)
            await self._eyes.keep(memory.lead)
        except LeaseLost as lost:
            self._stand_by(str(lost))

    async def _remembered(self) -> Memory[S] | None:
        """What this replica knows as the observer; None while another one is."""
        number = self._lease.epoch if self._lease.held else None
        if number is None:
            self._memory = None
        elif self._memory is None or self._memory.lead.number != number:
            counted = {
                one.key: timedelta(milliseconds=one.absent_ms)
                for one in await self._store.expected(self._eyes.cluster)
                if one.absent_ms
            }
            lead = Lead(self._lease, number, self._epoch(), self._eyes.cluster)
            await self._eyes.begin()
            self._memory = Memory(lead, Absences(self._lost_after, counted, self._longest_gap))
        return self._memory

    def _stand_by(self, why: str) -> None:
        self._memory = None
        self._log.info("another replica observes", why=why)

    async def _look(self, memory: Memory[S]) -> bool:
        at = self._clock.now()
        observation = await self._eyes.observe()
        failpoints.reach("observe.after")
        self._note_whether_whole(memory, observation)
        if observation is not memory.observation:
            await self._tell(memory, observation, at)
            memory.observation = observation
        alive = {(seen.job, seen.attempt) for seen in observation.submissions if self._eyes.is_alive(seen)}
        if observation.complete:
            if self._restoring.under_way:
                await self._restoring.once(memory.lead, at)
            for key in alive:
                memory.last_seen[key] = at
            await self._judge(memory, alive, at)
        return bool(alive)

    def _note_whether_whole(self, memory: Memory[S], observation: Observed[S]) -> None:
        if observation.complete:
            memory.problem = None
            return
        self._blind.add(1)
        memory.absences.blind()
        if observation.problem != memory.problem:
            self._log.warning(
                "the backend could not be observed: no state changes",
                cluster=self._eyes.cluster,
                why=observation.problem,
            )
            memory.problem = observation.problem

    async def _tell(self, memory: Memory[S], observation: Observed[S], at: datetime) -> None:
        """Report what changed since the last look; what cannot be committed now is told at the next."""
        shown = {seen.submission: seen for seen in observation.submissions}
        changed = [seen for seen in shown.values() if memory.told.get(seen.submission) is not seen]
        for start in range(0, len(changed), _TOLD_AT_ONCE):
            part = changed[start : start + _TOLD_AT_ONCE]
            self._told.add(await self._store.tell(memory.lead, self._eyes.found(part), at))
            memory.told.update((seen.submission, seen) for seen in part)
        if observation.complete:
            for submission in memory.told.keys() - shown.keys():
                del memory.told[submission]

    async def _judge(self, memory: Memory[S], alive: set[Key], at: datetime) -> None:
        """Count how long what should be there is absent, and report what is lost."""
        before = memory.judged_at
        if before is not None and timedelta(0) <= at - before < timedelta(seconds=_ABSENCE_SECONDS):
            return
        memory.judged_at = at
        expected = {one.key: one for one in await self._store.expected(self._eyes.cluster)}
        lost = memory.absences.observed(at, alive, {key: one.accepted_at for key, one in expected.items()})
        for key in sorted(lost):
            await self._confirm(memory, expected[key], at)
        memory.last_seen = {
            key: seen_at for key, seen_at in memory.last_seen.items() if key in alive or key in expected
        }

    async def _confirm(self, memory: Memory[S], one: Expected, at: datetime) -> None:
        """A last look at everything there is a record of, released ones too; without an end, it is lost."""
        try:
            known = await self._eyes.find(one.job, one.attempt)
        except CouldNotAsk as error:
            self._log.warning("a lost submission could not be looked for", job=one.job, why=str(error))
            return
        ends = [finding for finding in self._eyes.found(known) if finding.kind == "exited"]
        if ends:
            await self._store.tell(memory.lead, ends, at)
            return
        if any(map(self._eyes.is_alive, known)):
            return
        last = max((seen_at for seen_at in (memory.last_seen.get(one.key), one.last_seen_at) if seen_at), default=None)
        fact = {"tenant": one.tenant, "last_seen_at": None if last is None else last.isoformat()}
        submission = one.submission or f"{one.job}.a{one.attempt}"
        finding = Finding(submission, "lost", one.job, one.attempt, fact)
        self._told.add(await self._store.lose(memory.lead, [finding], at))
        memory.told.pop(submission, None)
        self._log.warning("lost: nobody saw how it ended", job=one.job, attempt=one.attempt)
