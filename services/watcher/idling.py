"""Looking at workstations' activity for all replicas: whoever is idle is told of, warned, and in the end suspended."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from services.watcher.domain import Finding
from services.watcher.idle import Idle, InUse, Limits, judge, shown
from services.watcher.observing import Lead
from services.watcher.store import Resting, Store
from shared.backends.clusters import LOCAL
from shared.backends.local.activity import Activity, read_activity
from shared.lifecycle.commands import IDLE_POLICY
from shared.runtime.clock import Clock
from shared.runtime.leases import Lease, LeaseLost
from shared.runtime.logs import Log

_NOT_IDLE: Final[Mapping[str, Any]] = {"idle_since": None, "suspends_at": None, "probes": []}


class Idling:
    """What the probes' records say of every workstation that may be suspended, told once per change."""

    def __init__(
        self,
        store: Store,
        root: str | Path,
        clock: Clock,
        log: Log,
        *,
        lease: Lease,
        epoch: Callable[[], int],
        warning_seconds: float,
    ) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._log = log
        self._lease = lease
        self._epoch = epoch
        self._warning_seconds = warning_seconds

    async def once(self) -> None:
        """Look at all of them, where this replica observes. Safe to begin anew: what was told is not told again."""
        number = self._lease.epoch if self._lease.held else None
        if number is None or not (resting := await self._store.resting()):
            return
        lead = Lead(self._lease, number, self._epoch(), LOCAL)
        read = await asyncio.to_thread(self._read, resting)
        now = self._clock.now()
        found: list[Finding] = []
        for one, activity in read:
            limits = Limits.of(one.idle_seconds, self._warning_seconds, one.snoozed_until)
            found += _findings(one, activity, judge(activity, limits, one.announced, now))
        try:
            await self._store.tell(lead, found, now)
        except LeaseLost as lost:
            self._log.info("another replica observes", why=str(lost))

    def _read(self, resting: Sequence[Resting]) -> list[tuple[Resting, Activity]]:
        """Those whose activity can be read; of the others nothing is known, and nothing changes."""
        read = []
        for one in resting:
            try:
                activity = read_activity(self._root, one.submission)
            except OSError as error:
                self._log.warning("a workstation's activity cannot be read", job=one.job, why=str(error))
                continue
            if activity is not None:
                read.append((one, activity))
        return read


def _findings(one: Resting, activity: Activity, judged: InUse | Idle) -> Iterator[Finding]:
    """What is to be told. That it is in use is said only where something else was said before."""
    if isinstance(judged, InUse):
        if one.announced is not None:
            yield _finding(one, "seen_idle", _NOT_IDLE)
        return
    since, suspends_at = judged.since.isoformat(), judged.suspends_at.isoformat()
    yield _finding(one, "seen_idle", {"idle_since": since, "suspends_at": suspends_at, "probes": list(shown(activity))})
    if judged.is_due:
        reason = f"idle since {judged.since:%H:%M:%S} UTC, to be suspended at {judged.suspends_at:%H:%M:%S} UTC"
        yield _finding(one, "policy_pause", {"policy": IDLE_POLICY, "reason": reason})


def _finding(one: Resting, kind: str, fields: Mapping[str, Any]) -> Finding:
    return Finding(one.submission, kind, one.job, one.attempt, {"tenant": one.tenant, **fields})
