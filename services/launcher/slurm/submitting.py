"""Handing launches to sbatch: so many at once, none of them for longer than its answer is worth waiting for.

A call is noted in the attempt's directory before it is made. What becomes of it while nobody waits any more is found
there, and in the queue.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from services.launcher.backend import Shown, Target
from services.launcher.slurm import asked
from services.launcher.slurm.evidence import Attempts, Evidence, in_thread
from services.launcher.slurm.finding import Finding
from services.launcher.slurm.looks import Looks
from services.launcher.slurm.orders import CONFIGURATION, Misfit, Orders, orders
from shared.backends.clusters import SlurmCluster
from shared.backends.local.messages import CouldNotAsk, LaunchAnswer, LaunchKind, LaunchRequest
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm import layout, script
from shared.backends.slurm.answers import Refused, Submitted, Unclear
from shared.backends.slurm.client import SlurmClient
from shared.runtime.clock import Clock

_PATIENCE_SECONDS: Final = 10.0
"""So long one call keeps the others of its batch waiting; then its job is looked for instead."""
_PASSING_SECONDS: Final = 10.0
"""So long what was refused for now is not asked for again: a full queue is not to be kept busy by that."""
_AS_ROOT: Final = (
    "jobs would run as root on this cluster: run the services as an account of their own, give the cluster's table a "
    "prefix such as setpriv, or set allow_root = true there"
)


class Submitting:
    """On one cluster. Safe to share between tasks."""

    def __init__(
        self,
        settings: SlurmCluster,
        client: SlurmClient,
        looks: Looks,
        finding: Finding,
        attempts: Attempts,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._client = client
        self._looks = looks
        self._finding = finding
        self._attempts = attempts
        self._clock = clock
        self._slots = asyncio.Semaphore(settings.submissions_at_once)
        self._calls: set[asyncio.Task[LaunchAnswer]] = set()
        self._silent: str | None = None
        self._passing: dict[object, tuple[float, str]] = {}

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """As the protocol says; several at once. What was asked for before, by whomever, is looked for first."""
        if self._silent is not None:  # one look tells whether it is worth while; a call that hangs leaves a doubt
            try:
                await self._looks.queue()
            except CouldNotAsk as error:
                return [_answer(one, LaunchKind.BUSY, f"the cluster does not answer: {error}") for one in requests]
            self._silent = None
        targets = [_target(request) for request in requests]
        evidence = await self._attempts.look(targets)
        before = [target for target, one in zip(targets, evidence, strict=True) if _may_be_there(one)]
        looks = await self._finding.find(before) if before else []
        known = {target.submission: look for target, look in zip(before, looks, strict=True)}
        return list(await asyncio.gather(*(self._launch(one, known.get(one.submission)) for one in requests)))

    async def _launch(self, request: LaunchRequest, known: Shown | CouldNotAsk | None) -> LaunchAnswer:
        if isinstance(known, CouldNotAsk):
            return _answer(request, LaunchKind.UNCLEAR, str(known))
        if known is not None:
            return _answer(request, LaunchKind.ALREADY, f"it is Slurm job {known.ref}")
        if os.geteuid() == 0 and not self._settings.prefix and not self._settings.allow_root:
            return _answer(request, LaunchKind.REFUSED, _AS_ROOT, "configuration")
        try:
            made = orders(request, self._settings, self._attempts.root, secrets.token_hex(8))
        except ValueError as error:
            return _answer(request, LaunchKind.REFUSED, str(error), "invalid_order")
        if isinstance(made, Misfit):
            return _answer(request, LaunchKind.REFUSED, made.sentence, made.word)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            return _answer(request, LaunchKind.BUSY, "all submissions that may be made at once are under way")
        call = asyncio.create_task(self._call(request, made))
        call.add_done_callback(lambda _: self._slots.release())
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.wait({call}, timeout=_PATIENCE_SECONDS)
        if call.done():
            return call.result()
        self._silent = f"sbatch has not answered for {_PATIENCE_SECONDS:g} s"
        return _answer(request, LaunchKind.UNCLEAR, f"{self._silent}: its job is looked for")

    async def _call(self, request: LaunchRequest, made: Orders) -> LaunchAnswer:
        if self._silent is not None:
            return _answer(request, LaunchKind.BUSY, f"the cluster gave no answer for another job: {self._silent}")
        if (refused := self._refused_lately(made)) is not None:
            return _answer(request, LaunchKind.BUSY, refused)
        begun = self._clock.now()
        over_at = begun + timedelta(seconds=self._client.submit_seconds)
        if request.not_after is not None and over_at > request.not_after:
            return _answer(request, LaunchKind.BUSY, "too little is left of the time to submit it in")
        directory, token = made.runner.attempt_directory, made.runner.token

        def prepare() -> bool:
            if os.path.lexists(f"{directory}/{layout.REVOKED}"):
                return False
            script.prepare(made.runner)
            asked.note(directory, token, over_at)
            return True

        try:
            if not await in_thread(prepare):
                return _answer(request, LaunchKind.REFUSED, "its attempt is revoked: launch the next one", "revoked")
        except CouldNotAsk as error:
            return _answer(request, LaunchKind.BUSY, str(error))
        if self._clock.now() - begun > timedelta(seconds=_PATIENCE_SECONDS):  # by the note it might seem over too soon
            await _forget(directory, token)
            return _answer(request, LaunchKind.BUSY, "the attempt's directory was written too slowly")
        match await self._client.submit(made.slurm):
            case Submitted(id):
                return LaunchAnswer(request.submission, LaunchKind.ACCEPTED, None, f"Slurm job {id}", ref=id)
            case Refused(sentence, word, passing):
                await _forget(directory, token)
                if passing:
                    self._passing[_shape(made)] = asyncio.get_running_loop().time() + _PASSING_SECONDS, sentence
                    return _answer(request, LaunchKind.BUSY, sentence, word)
                reason = "configuration" if word in CONFIGURATION else word
                return _answer(request, LaunchKind.REFUSED, f"Slurm refused it: {sentence}", reason)
            case Unclear(why):
                self._silent = why
                with contextlib.suppress(CouldNotAsk):  # the first note tells the latest time
                    await in_thread(lambda: asked.note(directory, token, self._clock.now()))
                return _answer(request, LaunchKind.UNCLEAR, why)

    def _refused_lately(self, made: Orders) -> str | None:
        """What Slurm said to one just like it, a moment ago."""
        now = asyncio.get_running_loop().time()
        self._passing = {shape: said for shape, said in self._passing.items() if said[0] > now}
        return self._passing.get(_shape(made), (now, None))[1]


async def _forget(directory: str, token: str) -> None:
    """A call that has made no job; a note that stays only has the next one wait."""
    with contextlib.suppress(CouldNotAsk):
        await in_thread(lambda: asked.withdraw(directory, token))


def _may_be_there(evidence: Evidence | CouldNotAsk) -> bool:
    return isinstance(evidence, CouldNotAsk) or evidence.over_at is not None or evidence.claimed


def _target(request: LaunchRequest) -> Target:
    parsed = parse_submission_name(request.submission)
    assert parsed is not None, "the launcher made the name"
    return Target(request.submission, request.tenant, parsed[1], parsed[2])


def _shape(made: Orders) -> object:
    order = made.slurm
    return (order.account, order.partition, order.qos, order.gres, order.nodes, order.time_limit_seconds)


def _answer(request: LaunchRequest, kind: LaunchKind, sentence: str, reason: str | None = None) -> LaunchAnswer:
    return LaunchAnswer(request.submission, kind, reason, sentence)
