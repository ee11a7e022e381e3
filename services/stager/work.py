"""The two kinds of work on an attempt: staging in and copying back, from a lease to what is told."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from services.stager import workdir
from services.stager.blobs import StoreError
from services.stager.copying import Copying
from services.stager.domain import Stage
from services.stager.earlier import Before
from services.stager.facts import Heading, Result
from services.stager.leases import Claim, Leases
from services.stager.marks import Mark
from services.stager.staging import Invalid, Staging, Valid
from services.stager.underway import Held, Trace, Underway
from services.stager.upstream import Upstream
from services.stager.workers import Abandoned, Lease, pause_seconds
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import AnyFact, Finding
from shared.runtime.errors import DatabaseUnavailable, RpcError, RpcUnavailable
from shared.runtime.logs import Log
from shared.runtime.specs import Specs

T = TypeVar("T")
_NOT_STAGED: Final = Result("none")
_DATABASE_PAUSE_SECONDS: Final = 0.5
_DIED: Final = "the stager ended each time while it worked on this: ask the operator to look at its log"


class Work:
    """What workers do. Every result is published through the store's fence, or not at all."""

    def __init__(
        self,
        rows: Leases,
        specs: Specs,
        staging: Staging,
        copying: Copying,
        underway: Underway,
        upstream: Upstream,
        log: Log,
        *,
        tries: int,
        threads: int,
    ) -> None:
        self._rows = rows
        self._specs = specs
        self._staging = staging
        self._copying = copying
        self._underway = underway
        self._upstream = upstream
        self._tries = tries
        self._log = log
        # Threads of their own: long copies must not keep the event handler, which uses the loop's, waiting.
        self._threads = ThreadPoolExecutor(threads, "staging")

    async def stage_in(self, lease: Lease) -> None:
        """Validate and stage in, or say what is wrong, or try again later, or give up for good."""
        claim = lease.claim
        spec = await self._spec(claim)
        if spec is None:
            return
        if self._keeps_dying(claim):
            await self._later_or_failed(claim, _DIED)
            return
        with self._underway.work() as held:
            try:
                claim, outcome = await self._staged(lease, spec, held, await self._before(claim))
            except workdir.Claimed as ran:
                await self._ran_before(claim, ran, nothing_to_copy=not spec.outputs)
                return
            except (RpcUnavailable, RpcError) as error:
                self._log.warning("outputs of earlier steps are not known yet", job=claim.job, error=str(error))
                await self._rows.hand_back([claim], after_seconds=1, uncounted=True)
                return
            except (StoreError, OSError) as error:
                await self._later_or_failed(claim, f"{error}")
                return
            match outcome:
                case Invalid(findings):
                    await self._publish(claim, Stage.SEALED, lambda told: _refused(told, findings))
                case Valid(directory, warnings):
                    held.settled = await self._publish_staged(
                        claim, directory, warnings, nothing_to_copy=not spec.outputs
                    )

    async def copy_back(self, lease: Lease) -> None:
        """Copy the outputs back and vote, or try again later; in the end the vote says what failed."""
        claim = lease.claim
        spec = await self._spec(claim)
        if spec is None:
            return
        if self._keeps_dying(claim):
            told = partial(_voted, result=Result("failed", message=_DIED))
            await self._publish(claim, Stage.SEALED, told)
            return
        last = claim.tries >= self._tries
        claim, unused = await self._in_thread(partial(self._of_the_run, claim))
        copying = partial(self._copying.run, claim, spec.outputs, lease.go_on, last_try=last)
        with self._underway.work() as held:
            for trace in (claim.trace, *unused):
                held.add(trace)
            try:
                result = await self._in_thread(copying)
            except (StoreError, OSError) as error:
                if not last:
                    self._log.warning("copying back is tried again", job=claim.job, tries=claim.tries, error=str(error))
                    await self._rows.hand_back([claim], after_seconds=pause_seconds(claim.tries))
                    return
                result = Result("failed", message=str(error))
            told = partial(_voted, result=result)
            held.settled = await self._publish(
                claim, Stage.SEALED, told, directory=claim.directory, manifest=result.manifest
            )
            for trace in unused if held.settled else ():
                await self._in_thread(partial(self._staging.discard, trace, claim.directory))
        if held.settled:
            await self._clear_below(claim)

    def _of_the_run(self, claim: Claim) -> tuple[Claim, tuple[Trace, ...]]:
        """Outputs are those of the directory in which the command ran, whatever the records say since a restore; with
        it the trace of the one that nobody has used."""
        ran = self._staging.directory_of_the_run(claim)
        if ran is None or claim.directory is None or ran == claim.directory:
            return claim, ()
        self._log.warning("the attempt ran in another directory than was told", job=claim.job, directory=ran)
        mark = Mark.read(os.path.basename(claim.directory))
        unused = () if mark is None else (replace(claim.trace, mark=mark),)
        return replace(claim, directory=ran), unused

    async def _before(self, claim: Claim) -> Before:
        """What was brought back before this attempt."""
        return Before(await self._upstream.manifests(claim.after), await self._rows.earlier_copies(claim))

    async def _staged(self, lease: Lease, spec: JobSpec, held: Held, before: Before) -> tuple[Claim, Valid | Invalid]:
        """Stage into the directory of the lease's epoch, or of a higher one where that name is taken."""
        while True:
            held.add(lease.claim.trace)
            try:
                staging = partial(self._staging.run, lease.claim, spec, lease.go_on, before)
                return lease.claim, await self._in_thread(staging)
            except workdir.Taken:
                epoch = await self._rows.next_epoch(lease.claim)
                if epoch is None:
                    raise Abandoned from None
                lease.claim = replace(lease.claim, lease_epoch=epoch)

    async def _publish_staged(
        self, claim: Claim, directory: str, warnings: Sequence[str], *, nothing_to_copy: bool
    ) -> bool:
        stage = Stage.SEALED if nothing_to_copy else Stage.STAGED

        def tell(told: Heading) -> tuple[AnyFact, ...]:
            return told.valid(warnings), told.staged(directory, nothing_to_copy=nothing_to_copy)

        return await self._publish(claim, stage, tell, directory=directory)

    async def _ran_before(self, claim: Claim, ran: workdir.Claimed, *, nothing_to_copy: bool) -> None:
        """Only after a restore: the attempt ran in a time that nobody remembers. Where it ran is told as staged."""
        if ran.directory is None:
            await self._later_or_failed(claim, "the attempt ran in a time that was lost, and nobody knows where")
            return
        self._log.warning("an attempt had run already", job=claim.job, attempt=claim.attempt, directory=ran.directory)
        await self._publish_staged(claim, ran.directory, (), nothing_to_copy=nothing_to_copy)

    async def _later_or_failed(self, claim: Claim, message: str) -> None:
        if claim.tries < self._tries:
            self._log.warning("staging in is tried again", job=claim.job, tries=claim.tries, error=message)
            await self._rows.hand_back([claim], after_seconds=pause_seconds(claim.tries))
            return
        said = f"{message} (tried {claim.tries} times)"
        await self._publish(claim, Stage.SEALED, lambda told: _gave_up(told, said))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _keeps_dying(self, claim: Claim) -> bool:
        """Whether earlier tries ended without a word so often that it must be this work's doing."""
        return claim.tries > 2 * self._tries

    async def _spec(self, claim: Claim) -> JobSpec | None:
        """The job's spec; where `api` does not answer the row is handed back, and None returned."""
        try:
            specs = await self._specs.get([(claim.tenant, claim.spec_digest)])
        except (RpcUnavailable, RpcError) as error:
            self._log.warning("no spec yet", job=claim.job, error=str(error))
            await self._rows.hand_back([claim], after_seconds=1, uncounted=True)
            return None
        spec = specs.get((claim.tenant, claim.spec_digest))
        if spec is None:
            await self._rows.hand_back([claim], after_seconds=pause_seconds(claim.tries))
            self._log.error("api does not know the spec of a job", job=claim.job, digest=claim.spec_digest)
        return spec

    async def _publish(
        self,
        claim: Claim,
        stage: Stage,
        tell: Callable[[Heading], Sequence[AnyFact]],
        *,
        directory: str | None = None,
        manifest: str | None = None,
    ) -> bool:
        """Through the fence; while the database is away the finished work waits."""
        while True:
            try:
                return await self._rows.publish(claim, stage, tell, directory=directory, manifest=manifest)
            except DatabaseUnavailable as error:
                self._log.warning("finished work waits for the database", job=claim.job, error=str(error))
                await asyncio.sleep(_DATABASE_PAUSE_SECONDS)

    async def _clear_below(self, claim: Claim) -> None:
        """Remove outputs that nobody will ever see. They cost room only: trouble with it is left at that."""
        try:
            await self._in_thread(partial(self._copying.forget_below, claim.trace))
        except StoreError as error:
            self._log.warning("leftovers stay in the store", job=claim.job, error=str(error))


def _refused(told: Heading, findings: Sequence[Finding]) -> tuple[AnyFact, ...]:
    return told.invalid(findings), told.sealed(staged=False, result=_NOT_STAGED, because="input_invalid")


def _gave_up(told: Heading, message: str) -> tuple[AnyFact, ...]:
    return told.failed(message), told.sealed(staged=False, result=_NOT_STAGED, because="staging_failed")


def _voted(told: Heading, result: Result) -> tuple[AnyFact, ...]:
    return (told.sealed(staged=True, result=result),)
