"""Looking for submissions that may have reached the cluster: in the queue, by their claims, and in accounting.

The queue first: what it does not show any more has left its claim, or its row in accounting, by then.
"""

from collections.abc import Sequence
from datetime import UTC, timedelta

from services.launcher.backend import Shown, Target
from services.launcher.slurm.cancelling import Cancelling
from services.launcher.slurm.evidence import Attempts, Evidence
from services.launcher.slurm.found import shown, shown_ended
from services.launcher.slurm.looks import Looks, Queue
from shared.backends.clusters import SlurmCluster
from shared.backends.local.messages import CouldNotAsk
from shared.runtime.clock import Clock


class Finding:
    """Of one cluster."""

    def __init__(
        self,
        name: str,
        settings: SlurmCluster,
        looks: Looks,
        attempts: Attempts,
        cancelling: Cancelling,
        clock: Clock,
    ) -> None:
        self._name = name
        self._accounting = settings.accounting
        self._settle = timedelta(seconds=settings.settle_seconds)
        self._looks = looks
        self._attempts = attempts
        self._cancelling = cancelling
        self._clock = clock

    async def find(self, targets: Sequence[Target]) -> list[Shown | CouldNotAsk | None]:
        """As the protocol says. What is nowhere may still show up until the settle time is over."""
        try:
            queue = await self._looks.queue()
        except CouldNotAsk as error:
            return [error] * len(targets)
        evidence = await self._attempts.look(targets)
        found = [await self._find(target, queue, one) for target, one in zip(targets, evidence, strict=True)]
        missing = [target for target, one in zip(targets, found, strict=True) if one is None]
        if not missing or not self._accounting:
            return found
        try:
            past = await self._looks.accounting([target.submission for target in missing])
        except CouldNotAsk as error:
            return [error if one is None else one for one in found]
        return [
            shown_ended(target, past.get(target.submission, ())) if one is None else one
            for target, one in zip(targets, found, strict=True)
        ]

    async def _find(self, target: Target, queue: Queue, evidence: Evidence | CouldNotAsk) -> Shown | CouldNotAsk | None:
        if isinstance(evidence, CouldNotAsk):
            return evidence
        try:
            rows = [row for row in queue.of(target.submission) if not row.refused]
        except CouldNotAsk as error:
            return error
        if len(rows) > 1:
            await self._cancelling.cancel_doubles(rows, evidence.known)
        return shown(target, rows, evidence.known) or self._settles(evidence, queue)

    def _settles(self, evidence: Evidence, queue: Queue) -> CouldNotAsk | None:
        """None once nothing that was asked before can still show up. The time counts while the controller answers: one
        that hung goes through what it was sent meanwhile."""
        if evidence.over_at is None:
            return None
        until = max(evidence.over_at, queue.since) + self._settle
        if self._clock.now() >= until:
            return None
        last = f"{until.astimezone(UTC):%H:%M:%S} UTC"
        return CouldNotAsk(f"whether {self._name} has it is not known: its job may show up until {last}")
