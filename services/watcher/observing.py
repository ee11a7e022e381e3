"""Looking at the backend, telling what is new, and noticing what is gone."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.metrics import Meter

from services.watcher.absence import Absences, Key
from services.watcher.domain import Finding, Unknown, findings, is_alive, tenant_of
from services.watcher.store import Expected, Store
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.sightings import Observation, Seen
from shared.runtime import failpoints
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

_ABSENCE_SECONDS: Final = 0.5
_TOLD_AT_ONCE: Final = 500


@dataclass
class Memory:
    """What this process knows between two looks; all of it can be forgotten."""

    told: dict[str, Seen] = field(default_factory=dict)
    last_seen: dict[Key, datetime] = field(default_factory=dict)
    unknown_words: set[str] = field(default_factory=set)
    observation: Observation | None = None
    judged_at: datetime | None = None
    problem: str | None = None


class Observing:
    """One cluster's eyes."""

    def __init__(
        self,
        store: Store,
        observe: Callable[[], Observation],
        backend: LocalClient,
        clock: Clock,
        log: Log,
        meter: Meter,
        *,
        lost_after: timedelta,
    ) -> None:
        self._store = store
        self._observe = observe
        self._backend = backend
        self._clock = clock
        self._log = log
        self._memory = Memory()
        self._absences = Absences(lost_after)
        self._unknown = meter.create_counter("tidegate_unknown_words", description="Words that the mapping lacks")
        self._blind = meter.create_counter("tidegate_incomplete_observations", description="Looks that were not whole")
        self._told = meter.create_counter("tidegate_sightings_told", description="Facts told about submissions")

    async def once(self) -> bool:
        """Look once and tell what is new; whether something is alive."""
        at = self._clock.now()
        observation = await asyncio.to_thread(self._observe)
        failpoints.reach("observe.after")
        self._note_whether_whole(observation)
        if observation is not self._memory.observation:
            await self._tell(observation, at)
            self._memory.observation = observation
        alive = {(seen.job, seen.attempt) for seen in observation.submissions if is_alive(seen)}
        if observation.complete:
            for key in alive:
                self._memory.last_seen[key] = at
            await self._judge(observation, alive, at)
        return bool(alive)

    async def keep(self) -> None:
        """Write down when live attempts were last seen."""
        await self._store.mark_seen(dict(self._memory.last_seen))

    def _note_whether_whole(self, observation: Observation) -> None:
        if observation.complete:
            self._memory.problem = None
            return
        self._blind.add(1)
        self._absences.blind()
        if observation.problem != self._memory.problem:
            self._log.warning("the backend could not be observed: no state changes", why=observation.problem)
            self._memory.problem = observation.problem

    async def _tell(self, observation: Observation, at: datetime) -> None:
        """Report what changed since the last look; what cannot be committed now is told at the next."""
        shown = {seen.submission: seen for seen in observation.submissions}
        changed = [seen for seen in shown.values() if self._memory.told.get(seen.submission) is not seen]
        for start in range(0, len(changed), _TOLD_AT_ONCE):
            part = changed[start : start + _TOLD_AT_ONCE]
            self._told.add(await self._store.tell(self._found(part), at))
            self._memory.told.update((seen.submission, seen) for seen in part)
        if observation.complete:
            for submission in self._memory.told.keys() - shown.keys():
                del self._memory.told[submission]

    def _found(self, changed: Sequence[Seen]) -> list[Finding]:
        found: list[Finding] = []
        for seen in changed:
            result = findings(seen)
            if isinstance(result, Unknown):
                self._count_unknown(result.word)
            elif result and tenant_of(seen) is None:
                self._count_unknown("no tenant in the records")
            else:
                found += result
        return found

    def _count_unknown(self, word: str) -> None:
        self._unknown.add(1, {"word": word[:40]})
        if word not in self._memory.unknown_words:
            self._memory.unknown_words.add(word)
            self._log.warning("a word of the backend is unknown: the job keeps its state", word=word)

    async def _judge(self, observation: Observation, alive: set[Key], at: datetime) -> None:
        """Count how long what should be there is absent, and report what is lost."""
        before = self._memory.judged_at
        if before is not None and timedelta(0) <= at - before < timedelta(seconds=_ABSENCE_SECONDS):
            return
        self._memory.judged_at = at
        expected = {one.key: one for one in await self._store.expected()}
        lost = self._absences.observed(at, alive, {key: one.accepted_at for key, one in expected.items()})
        for key in sorted(lost):
            await self._confirm(expected[key], at)
        self._memory.last_seen = {
            key: seen_at for key, seen_at in self._memory.last_seen.items() if key in alive or key in expected
        }

    async def _confirm(self, one: Expected, at: datetime) -> None:
        """A last look at everything there is a record of, released ones too; without an end, it is lost."""
        try:
            known = await self._backend.find(one.job, one.attempt)
        except CouldNotAsk as error:
            self._log.warning("a lost submission could not be looked for", job=one.job, why=str(error))
            return
        ends = self._found([seen for seen in known if seen.exit is not None])
        if ends:
            await self._store.tell(ends, at)
            return
        if any(is_alive(seen) for seen in known):
            return
        last = self._memory.last_seen.get(one.key) or one.last_seen_at
        fact = {"tenant": one.tenant, "last_seen_at": None if last is None else last.isoformat()}
        submission = one.submission or f"{one.job}.a{one.attempt}"
        self._told.add(await self._store.lose([Finding(submission, "lost", one.job, one.attempt, fact)], at))
        self._memory.told.pop(submission, None)
        self._log.warning("lost: nobody saw how it ended", job=one.job, attempt=one.attempt)
