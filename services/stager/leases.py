"""The lease of an attempt that is worked on: taken, renewed, handed back, and the fence that publishes work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from services.stager.domain import Stage
from services.stager.earlier import Copy
from services.stager.facts import Heading, outgoing
from services.stager.marks import Mark
from services.stager.store import fact_numbers, told_as_json
from services.stager.underway import Trace
from shared.contracts.ids import made_at_ms
from shared.lifecycle.facts import AnyFact
from shared.runtime.clock import Clock
from shared.runtime.database import Database

_CLAIM: Final = """
WITH due AS (
    SELECT job, attempt FROM staging
    WHERE stage = $1 AND due_at <= now() AND (owner IS NULL OR deadline < now())
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE staging SET
    owner = $3, deadline = now() + make_interval(secs => $4), lease_epoch = lease_epoch + 1, tries = tries + 1
FROM due WHERE staging.job = due.job AND staging.attempt = due.attempt
RETURNING staging.job, staging.attempt, tenant, spec_digest, directory, succeeded, after, lease_epoch, tries
"""
_HELD: Final = """
FROM unnest($2::text[], $3::integer[], $4::integer[]) AS held (job, attempt, lease_epoch)
WHERE staging.job = held.job AND staging.attempt = held.attempt AND staging.lease_epoch = held.lease_epoch
  AND owner = $1
"""
_RENEW: Final = f"""
UPDATE staging SET deadline = now() + make_interval(secs => $5) {_HELD} RETURNING staging.job, staging.attempt
"""
_HAND_BACK: Final = f"""
UPDATE staging SET owner = NULL, deadline = NULL, due_at = now() + make_interval(secs => $5),
       tries = tries - $6::boolean::integer {_HELD}
"""
_TAKE_BACK: Final = """
UPDATE staging SET owner = NULL, deadline = NULL WHERE owner = $1 AND stage IN ('stage_in', 'copy_back')
"""
_NEXT_EPOCH: Final = """
UPDATE staging SET lease_epoch = lease_epoch + 1
WHERE job = $1 AND attempt = $2 AND owner = $3 AND lease_epoch = $4 RETURNING lease_epoch
"""
_LOCK_LEASED: Final = """
SELECT stage, owner, lease_epoch, directory, manifest FROM staging WHERE job = $1 AND attempt = $2 FOR UPDATE
"""
_PUBLISH: Final = """
UPDATE staging SET stage = $3, owner = NULL, deadline = NULL, tries = 0, due_at = now(),
       directory = coalesce($4, directory), manifest = coalesce($5, manifest), facts = facts || $6::text::jsonb
WHERE job = $1 AND attempt = $2
"""
_EARLIER_COPIES: Final = """
SELECT attempt, manifest FROM staging
WHERE job = $1 AND attempt < $2
  AND (manifest IS NOT NULL OR facts @> '[{"kind": "staging_sealed", "outcome": "failed"}]')
ORDER BY attempt DESC
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Work that this replica holds the lease of. `tries` counts this one; `epoch` is the database's."""

    stage: Stage
    job: str
    attempt: int
    tenant: str
    spec_digest: str
    lease_epoch: int
    tries: int
    directory: str | None
    succeeded: bool | None
    epoch: int = 1
    after: str | None = None
    """The job of the pipeline's step before."""

    @property
    def mark(self) -> Mark:
        """The name of everything that this lease makes."""
        return Mark(self.epoch, self.lease_epoch)

    @property
    def submitted_ns(self) -> int:
        """When the job was submitted: nanoseconds since 1970, the same for all its attempts."""
        return made_at_ms(self.job) * 1_000_000

    @property
    def trace(self) -> Trace:
        """What tells that this lease is under way."""
        return Trace(self.tenant, self.job, self.attempt, self.mark)


class Leases:
    """What workers read and write."""

    def __init__(
        self, database: Database, clock: Clock, *, replica: str, lease_seconds: float, epoch: Callable[[], int]
    ) -> None:
        self._database = database
        self._clock = clock
        self._replica = replica
        self._lease_seconds = lease_seconds
        self._epoch = epoch

    async def claim(self, stage: Stage, limit: int) -> list[Claim]:
        """Take the lease of work that is due and that nobody holds, oldest first."""
        rows = await self._database.fetch(_CLAIM, stage, limit, self._replica, self._lease_seconds)
        return [Claim(stage=stage, epoch=self._epoch(), **dict(row)) for row in rows]

    async def renew(self, claims: Sequence[Claim]) -> set[tuple[str, int]]:
        """Hold on to leases; the attempts of those that are still ours."""
        rows = await self._database.fetch(_RENEW, *self._held(claims), self._lease_seconds)
        return {(row["job"], row["attempt"]) for row in rows}

    async def hand_back(self, claims: Sequence[Claim], *, after_seconds: float, uncounted: bool = False) -> None:
        """Let anybody take this work after a while; `uncounted`: the try was not its fault."""
        await self._database.execute(_HAND_BACK, *self._held(claims), after_seconds, uncounted)

    async def take_back(self) -> int:
        """What this replica held before it ended is nobody's; how many there were."""
        return int((await self._database.execute(_TAKE_BACK, self._replica)).split()[-1])

    async def next_epoch(self, claim: Claim) -> int | None:
        """A higher lease epoch for work that we hold; None where we hold it no more."""
        epoch: int | None = await self._database.fetchval(
            _NEXT_EPOCH, claim.job, claim.attempt, self._replica, claim.lease_epoch
        )
        return epoch

    async def publish(
        self,
        claim: Claim,
        stage: Stage,
        tell: Callable[[Heading], Sequence[AnyFact]],
        *,
        directory: str | None = None,
        manifest: str | None = None,
    ) -> bool:
        """End the work and tell the facts, if the lease is still ours: the fence. True also where an earlier call did
        it and the answer was lost; False leaves everything as it is."""
        async with self._database.transaction() as tx:
            row = await tx.fetchrow(_LOCK_LEASED, claim.job, claim.attempt)
            if row is None or not self._is_ours(row, claim):
                return row is not None and (row["directory"], row["manifest"]) == (
                    directory or claim.directory,
                    manifest,
                )
            heading = Heading(
                claim.job,
                claim.tenant,
                claim.attempt,
                self._clock.now(),
                source_of(self._replica),
                await fact_numbers(tx, 2),
                claim.epoch,
            )
            facts = tell(heading)
            await tx.execute(_PUBLISH, claim.job, claim.attempt, stage, directory, manifest, told_as_json(facts))
            await tx.enqueue([outgoing(fact) for fact in facts])
            return True

    async def earlier_copies(self, claim: Claim) -> tuple[Copy, ...]:
        """What attempts before this one brought back, the newest first; those that had nothing to bring are absent."""
        rows = await self._database.fetch(_EARLIER_COPIES, claim.job, claim.attempt)
        return tuple(Copy(row["attempt"], row["manifest"]) for row in rows)

    async def published(self, trace: Trace) -> tuple[str | None, str | None]:
        """The directory and the manifest that the attempt's row names. Waits for whoever is just publishing: of a dead
        process a commit may still be on its way."""
        async with self._database.transaction() as tx:
            row = await tx.fetchrow(_LOCK_LEASED, trace.job, trace.attempt)
        return (None, None) if row is None else (row["directory"], row["manifest"])

    def _is_ours(self, row: asyncpg.Record, claim: Claim) -> bool:
        return (row["stage"], row["owner"], row["lease_epoch"]) == (claim.stage, self._replica, claim.lease_epoch)

    def _held(self, claims: Sequence[Claim]) -> tuple[object, ...]:
        return (
            self._replica,
            [claim.job for claim in claims],
            [claim.attempt for claim in claims],
            [claim.lease_epoch for claim in claims],
        )


def source_of(replica: str) -> str:
    """Who reports, as facts name it."""
    return f"stager/{replica}"
