"""A Slurm cluster as the launcher sees it.

A submission is a job's name, which never varies: whoever may have called sbatch before looks for it, in the queue and
in accounting, until it is found or the settle time is over, and only then calls again. Should there be two jobs of one
name all the same, the claim lets one of them run the command: that one stays, or without a claim the earlier.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from opentelemetry.metrics import Meter

from services.launcher.backend import Holder, Look, Shown, Target, Where
from services.launcher.slurm import asked
from services.launcher.slurm.found import Found, found_of, is_alive, ran
from services.launcher.slurm.looks import Looks
from services.launcher.slurm.orders import CONFIGURATION, Misfit, Orders, orders
from shared.backends.clusters import SlurmCluster
from shared.backends.local import layout
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk, LaunchAnswer, LaunchKind, LaunchRequest, ReleaseAnswer
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm import records, script
from shared.backends.slurm.answers import NotDone, Refused, Submitted, Unclear
from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import NoAnswer, QueueRow
from shared.runtime.clock import Clock
from shared.runtime.logs import Log

_KILL_SECONDS: Final = 5.0
_AS_ROOT: Final = (
    "jobs would run as root on this cluster: run the services as an account of their own, give the cluster's table a "
    "prefix such as setpriv, or set allow_root = true there"
)

T = TypeVar("T")


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
        self._settings = settings
        self._client = client
        self._files = LocalClient(root)
        self._looks = Looks(client, clock)
        self._clock = clock
        self._log = log
        self._deployment = deployment
        self._doubles = meter.create_counter(
            "tidegate_double_submissions", description="Slurm jobs cancelled as second ones of one submission"
        )

    @property
    def cluster(self) -> str:
        """As the file of clusters names it."""
        return self._name

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """As the protocol says; several at once. What was asked for before, by whomever, is looked for first."""
        before = [request for request in requests if await self._was_asked(_target(request))]
        looks = await self.find([_target(request) for request in before]) if before else []
        known = {request.submission: look for request, look in zip(before, looks, strict=True)}
        return list(await asyncio.gather(*(self._launch(one, known.get(one.submission)) for one in requests)))

    async def find(self, targets: Sequence[Target]) -> list[Shown | CouldNotAsk | None]:
        """As the protocol says. What is not there may still show up until the settle time is over."""
        names = [target.submission for target in targets]
        accounted = await self._looks.accounting(names) if self._settings.accounting else {}
        queue = await self._looks.queue()
        if isinstance(queue, NoAnswer):
            return [CouldNotAsk(queue.why)] * len(targets)
        found: list[Shown | CouldNotAsk | None] = []
        for target in targets:
            rows = queue.get(target.submission, [])
            if isinstance(accounted, NoAnswer) and not rows:
                found.append(CouldNotAsk(accounted.why))
                continue
            past = [] if isinstance(accounted, NoAnswer) else accounted.get(target.submission, [])
            try:
                one = await self._one_of(target, found_of(rows, past))
                if one is None:
                    await self._settled(target)
                found.append(one)
            except CouldNotAsk as error:
                found.append(error)
        return found

    async def revoke(self, targets: Sequence[Target]) -> list[Look]:
        """As the protocol says. What is queued without a claim can only exit without running, and is cancelled."""
        claims = await self._files.revoke_all([self._directory(target) for target in targets])
        queue = await self._looks.queue()
        looks: list[Look] = []
        for target, held in zip(targets, claims, strict=True):
            if isinstance(held, CouldNotAsk):
                looks.append(held)
            elif isinstance(queue, NoAnswer):
                looks.append(CouldNotAsk(queue.why))
            elif held:
                names = dict.fromkeys(claim.submission or target.submission for claim in held)
                looks.append(tuple([Holder(name, await self._shown(target, queue.get(name, []))) for name in names]))
            else:
                looks.append(await self._unclaimed(target, queue.get(target.submission, [])))
        return looks

    async def stop(self, target: Target, grace_seconds: float, signal_number: int, *, pausing: bool) -> None:
        """As the protocol says: the runner is asked, and told that it was; without a grace Slurm ends it as well."""
        name = signal.Signals(signal_number).name[3:]
        now = self._clock.now()
        await _in_thread(
            lambda: records.request_stop(
                self._directory(target), "pause" if pausing else "stop", name, int(grace_seconds), now
            )
        )
        for row in await self._alive(target):
            if grace_seconds == 0 or row.state not in ("RUNNING", "SUSPENDED"):
                await self._cancel(row)
            else:
                told = await self._client.cancel(
                    [row.id], name=row.name, signal=script.NUDGE_SIGNAL, batch=True
                )  # it looks by itself, too
                if isinstance(told, NotDone):
                    self._log.info("a runner was not told of a stop, and will look", job=row.id, why=told.why)

    async def kill(self, target: Target) -> bool:
        """As the protocol says."""
        deadline = asyncio.get_running_loop().time() + _KILL_SECONDS
        while rows := await self._alive(target):
            for row in rows:
                await self._cancel(row)
            if asyncio.get_running_loop().time() >= deadline:
                return False
        return True

    async def release(self, targets: Sequence[Target]) -> list[ReleaseAnswer | CouldNotAsk]:
        """As the protocol says: the cluster forgets by itself; values of environments that nobody read are removed."""

        def remove() -> None:
            for target in targets:
                _remove_environments(self._directory(target))

        try:
            await _in_thread(remove)
        except CouldNotAsk as error:
            return [error] * len(targets)
        return [ReleaseAnswer.RELEASED] * len(targets)

    async def shown(self) -> list[Shown]:
        """As the protocol says: what is in the queue and has not ended."""
        queue = await self._looks.queue()
        if isinstance(queue, NoAnswer):
            return []
        found = []
        for name, rows in queue.items():
            parsed = parse_submission_name(name)
            if parsed is not None and parsed[0] == self._deployment and any(map(is_alive, rows)):
                tenant = next((words[2] for row in rows if len(words := (row.comment or "").split()) == 3), "")
                found.append(Shown(Target(name, tenant, parsed[1], parsed[2]), Where.ALIVE, claimed=True))
        return found

    async def _launch(self, request: LaunchRequest, known: Shown | CouldNotAsk | None) -> LaunchAnswer:
        if isinstance(known, CouldNotAsk):
            return _answer(request, LaunchKind.UNCLEAR, str(known))
        if known is not None:
            return _answer(request, LaunchKind.ALREADY, f"it is Slurm job {known.ref}")
        if os.geteuid() == 0 and not self._settings.prefix and not self._settings.allow_root:
            return _answer(request, LaunchKind.REFUSED, _AS_ROOT, "configuration")
        token = secrets.token_hex(8)
        made = orders(request, self._settings, self._files.root, token)
        if isinstance(made, Misfit):
            return _answer(request, LaunchKind.REFUSED, made.sentence, made.word)
        now = self._clock.now()
        if request.not_after is not None and now >= request.not_after:
            return _answer(request, LaunchKind.REFUSED, "its time to be submitted in was over", "too_late")
        try:
            await _in_thread(lambda: _prepare(made, token, now))
        except CouldNotAsk as error:
            return _answer(request, LaunchKind.BUSY, str(error))
        match await self._client.submit(made.slurm):
            case Submitted(id):
                return LaunchAnswer(request.submission, LaunchKind.ACCEPTED, None, f"Slurm job {id}", ref=id)
            case Refused(sentence, word, passing) if passing:
                return _answer(request, LaunchKind.BUSY, sentence, word)
            case Refused(sentence, word, _):
                reason = "configuration" if word in CONFIGURATION else word
                return _answer(request, LaunchKind.REFUSED, f"Slurm refused it: {sentence}", reason)
            case Unclear(why):
                return _answer(request, LaunchKind.UNCLEAR, why)

    async def _one_of(self, target: Target, found: Sequence[Found]) -> Shown | None:
        """The job that stays, of those that have the submission's name; the others are cancelled."""
        if not found:
            return None
        claimed = await _in_thread(lambda: records.read(self._directory(target)))
        holder = claimed.holder.slurm_job_id if claimed.holder is not None else None
        first = next((one for one in found if one.id == holder), found[0])
        for other in found:
            if other.alive and other is not first:
                self._doubles.add(1)
                self._log.warning(
                    "a submission has two Slurm jobs: one is cancelled",
                    submission=target.submission,
                    stays=first.id,
                    cancelled=other.id,
                )
                await self._cancel_id(other.id, target.submission)
        where = Where.ALIVE if first.alive else Where.ENDED
        return Shown(target, where, holder is not None, ran(claimed), first.submitted_at, first.id)

    async def _was_asked(self, target: Target) -> bool:
        try:
            return await _in_thread(lambda: asked.last(self._directory(target)) is not None)
        except CouldNotAsk:
            return True

    async def _settled(self, target: Target) -> None:
        """Returns once nothing that was asked before can still show up; raises CouldNotAsk until then."""
        at = await _in_thread(lambda: asked.last(self._directory(target)))
        until = None if at is None else at + timedelta(seconds=self._settings.settle_seconds)
        if until is not None and self._clock.now() < until:
            last = f"{until.astimezone(UTC):%H:%M:%S} UTC"
            raise CouldNotAsk(f"whether {self._name} has it is not known: its job may show up until {last}")

    async def _shown(self, target: Target, rows: Sequence[QueueRow]) -> Shown:
        claimed = await _in_thread(lambda: records.read(self._directory(target)))
        alive = any(map(is_alive, rows))
        where = Where.ALIVE if alive else Where.ENDED if claimed.exits or rows else Where.GONE
        return Shown(target, where, True, ran(claimed))

    async def _unclaimed(self, target: Target, rows: Sequence[QueueRow]) -> Look:
        alive = [row for row in rows if is_alive(row)]
        try:
            for row in alive:
                await self._cancel(row)
        except CouldNotAsk as error:
            return error
        if alive:
            return CouldNotAsk(f"Slurm job {alive[0].id} is being cancelled")
        return ()

    async def _alive(self, target: Target) -> list[QueueRow]:
        queue = await self._looks.queue()
        if isinstance(queue, NoAnswer):
            raise CouldNotAsk(queue.why)
        return [row for row in queue.get(target.submission, []) if is_alive(row)]

    async def _cancel(self, row: QueueRow) -> None:
        await self._cancel_id(row.id, row.name)

    async def _cancel_id(self, id: str, name: str) -> None:
        done = await self._client.cancel([id], name=name)
        if isinstance(done, NotDone):
            raise CouldNotAsk(f"Slurm job {id} could not be cancelled: {done.why}")

    def _directory(self, target: Target) -> str:
        return layout.attempt_directory(self._files.root, target.tenant, target.job, target.attempt)


def _target(request: LaunchRequest) -> Target:
    parsed = parse_submission_name(request.submission)
    assert parsed is not None, "the launcher made the name"
    return Target(request.submission, request.tenant, parsed[1], parsed[2])


def _answer(request: LaunchRequest, kind: LaunchKind, sentence: str, reason: str | None = None) -> LaunchAnswer:
    return LaunchAnswer(request.submission, kind, reason, sentence)


def _prepare(made: Orders, token: str, now: datetime) -> None:
    script.prepare(made.runner)
    asked.note(made.runner.attempt_directory, token, now)


def _remove_environments(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.startswith("env."):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{directory}/{name}")


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise CouldNotAsk(f"the attempt's directory could not be read or written: {error}") from error
