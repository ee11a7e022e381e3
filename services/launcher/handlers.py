"""One function per message: what job events make of the launcher's rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from services.launcher.domain import Decision, Graces, Launch, State, decide
from services.launcher.settings import LauncherSettings
from services.launcher.store import Store
from shared.contracts.events import decode_event, newest_by_job
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import Clock
from shared.runtime.messages import Delivery


class JobEvents:
    """The handler of the consumer `launcher`. It asks no backend: it writes what is to do and wakes who does it."""

    def __init__(
        self,
        store: Store,
        settings: LauncherSettings,
        clock: Clock,
        *,
        to_launch: Callable[[], None],
        to_end: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._graces = Graces(settings.stop_grace_seconds, settings.checkpoint_grace_seconds)
        self._clock = clock
        self._to_launch = to_launch
        self._to_end = to_end

    async def on_jobs(self, deliveries: list[Delivery]) -> None:
        """Begin, end or answer launches for a batch of job events. Safe to redeliver: guarded by (epoch, seq)."""
        await self.take(newest_by_job([decode_event(delivery.body).job for delivery in deliveries]))

    async def audited(self, records: Sequence[JobRecord]) -> None:
        """Act on records that an audit asked for."""
        await self.take(newest_by_job(records), answer=False)

    async def take(self, records: Mapping[str, JobRecord], *, answer: bool = True) -> None:
        """Act on these records; without `answer` one that was seen before asks nothing.

        What asks nothing back is one read and one guarded write. Questions, and rows that somebody else has written in
        between, are decided again under their locks.
        """
        rows, guards = await self._store.read_jobs(sorted(records))
        decisions = {job: self._decide(records[job], rows.get(job, {}), answer) for job in sorted(records)}
        left = {job for job, decision in decisions.items() if decision.answered}
        left |= await self._store.apply_unlocked([decisions[job] for job in decisions if job not in left], guards)
        if left:
            decisions |= await self._decide_locked({job: records[job] for job in left}, answer)
        states = {row.state for decision in decisions.values() for row in (*decision.begun, *decision.changed)}
        if State.INTENT in states:
            self._to_launch()
        if State.REVOKING in states:
            self._to_end()

    async def _decide_locked(self, records: Mapping[str, JobRecord], answer: bool) -> dict[str, Decision]:
        decided: dict[str, Decision] = {}
        async with self._store.database.transaction() as tx:
            left = set(records)
            while left:  # a second time only for jobs whose first row another replica has just inserted
                rows = await self._store.lock_jobs(tx, sorted(left))
                decisions = {job: self._decide(records[job], rows.get(job, {}), answer) for job in sorted(left)}
                decided |= decisions
                left = await self._store.apply(tx, list(decisions.values()))
        return decided

    def _decide(self, record: JobRecord, rows: Mapping[int, Launch], answer: bool) -> Decision:
        decision = decide(
            record,
            rows,
            deployment=self._settings.deployment,
            graces=self._graces,
            now=self._clock.now(),
        )
        return decision if answer else replace(decision, answered=())
