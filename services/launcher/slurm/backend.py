"""A Slurm cluster as the launcher sees it.

A submission is a job's name, which never varies: whoever may have called sbatch before looks for it, in the queue, by
its claim and in accounting, until it is found or the settle time is over, and only then calls again. Should there be
two jobs of one name all the same, the claim lets one of them run the command: that one stays, or without a claim the
earlier.
"""

from collections.abc import Sequence

from opentelemetry.metrics import Meter

from services.launcher.backend import Look, Shown, Target, Where
from services.launcher.slurm.cancelling import Cancelling
from services.launcher.slurm.evidence import Attempts, Evidence
from services.launcher.slurm.finding import Finding
from services.launcher.slurm.found import is_alive, target_of
from services.launcher.slurm.looks import Looks
from services.launcher.slurm.stopping import Stopping
from services.launcher.slurm.submitting import Submitting
from shared.backends.clusters import SlurmCluster
from shared.backends.local.messages import CouldNotAsk, LaunchAnswer, LaunchRequest, ReleaseAnswer
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import QueueRow
from shared.runtime.clock import Clock
from shared.runtime.logs import Log


class SlurmBackend:
    """One cluster. Safe to share between tasks."""

    def __init__(
        self,
        name: str,
        settings: SlurmCluster,
        client: SlurmClient,
        root: str,
        clock: Clock,
        log: Log,
        meter: Meter,
        *,
        deployment: str,
    ) -> None:
        self._name = name
        self._deployment = deployment
        self._attempts = Attempts(root)
        self._looks = Looks(client, clock)
        self._cancelling = Cancelling(client, log, meter)
        self._finding = Finding(name, settings, self._looks, self._attempts, self._cancelling, clock)
        self._submitting = Submitting(settings, client, self._looks, self._finding, self._attempts, clock)
        self._stopping = Stopping(self._looks, self._attempts, self._cancelling, clock)

    @property
    def cluster(self) -> str:
        """As the file of clusters names it."""
        return self._name

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """As the protocol says."""
        return await self._submitting.launch(requests)

    async def find(self, targets: Sequence[Target]) -> list[Shown | CouldNotAsk | None]:
        """As the protocol says."""
        return await self._finding.find(targets)

    async def revoke(self, targets: Sequence[Target]) -> list[Look]:
        """As the protocol says."""
        return await self._stopping.revoke(targets)

    async def stop(self, target: Target, grace_seconds: float, signal_number: int, *, pausing: bool) -> None:
        """As the protocol says."""
        await self._stopping.stop(target, grace_seconds, signal_number, pausing=pausing)

    async def kill(self, target: Target) -> bool:
        """As the protocol says."""
        return await self._stopping.kill(target)

    async def release(self, targets: Sequence[Target]) -> list[ReleaseAnswer | CouldNotAsk]:
        """As the protocol says: the cluster forgets by itself; values of environments that nobody read are removed."""
        try:
            await self._stopping.remove_environments(targets)
        except CouldNotAsk as error:
            return [error] * len(targets)
        return [ReleaseAnswer.RELEASED] * len(targets)

    async def shown(self) -> list[Shown]:
        """As the protocol says: what is in the queue and has not ended. Second jobs of one submission are cancelled."""
        try:
            queue = await self._looks.queue()
        except CouldNotAsk:
            return []
        ours: dict[Target, list[QueueRow]] = {}
        for name, rows in queue.jobs.items():
            parsed = parse_submission_name(name)
            if parsed is not None and parsed[0] == self._deployment and any(map(is_alive, rows)):
                nobodys = Target(name, "", parsed[1], parsed[2])  # somebody has changed its comment
                ours[next(filter(None, map(target_of, rows)), nobodys)] = list(rows)
        several = [target for target, rows in ours.items() if len(rows) > 1 and target.tenant]
        for target, evidence in zip(several, await self._attempts.look(several), strict=True):
            if isinstance(evidence, Evidence):
                await self._cancelling.cancel_doubles(ours[target], evidence.known)
        return [Shown(target, Where.ALIVE, claimed=True) for target in ours]
