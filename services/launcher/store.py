"""The launcher's slice: set-based, guarded, one transaction per batch.

Whoever changes rows locks them first, in the order of their keys, so that handlers and loops never wait in a circle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final

import asyncpg

from services.launcher import facts
from services.launcher.domain import Decision, Launch, State
from shared.contracts.facts import encode_fact
from shared.lifecycle.facts import AnyFact
from shared.runtime.database import Database, Tx
from shared.runtime.outbox import Outgoing

_TYPES: Final[Mapping[str, str]] = {
    "job": "text",
    "attempt": "integer",
    "tenant": "text",
    "epoch": "integer",
    "seq": "bigint",
    "state": "text",
    "submission": "text",
    "directory": "text",
    "spec_digest": "text",
    "gpus": "integer",
    "time_limit_seconds": "integer",
    "next_at": "timestamptz",
    "owner": "text",
    "token": "text",
    "deadline": "timestamptz",
    "asked": "boolean",
    "tries": "integer",
    "waits_for": "text",
    "grace_seconds": "double precision",
    "stop_asked_at": "timestamptz",
    "stop_asked_grace": "double precision",
    "accepted_n": "bigint",
    "accepted_at": "timestamptz",
    "begun_at": "timestamptz",
    "refused_reason": "text",
    "refused_message": "text",
    "sealed_n": "bigint",
    "sealed_at": "timestamptz",
    "ran": "boolean",
    "witnessed": "boolean",
    "released": "boolean",
    "answers": "integer",
}
_FIXED: Final = ("job", "attempt", "tenant", "submission", "spec_digest", "gpus", "time_limit_seconds")
_CHANGING: Final = tuple(name for name in _TYPES if name not in _FIXED)

_ALL: Final = ", ".join(_TYPES)
_GIVEN: Final = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(_TYPES.values(), start=1))

_LOCK_JOBS: Final = f"SELECT {_ALL} FROM launches WHERE job = ANY ($1::text[]) ORDER BY job, attempt FOR UPDATE"
_LOCK_ROWS: Final = f"""
SELECT {_ALL} FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
ORDER BY job, attempt FOR UPDATE OF launches
"""
_INSERT: Final = f"""
INSERT INTO launches ({_ALL}) SELECT {_ALL} FROM unnest({_GIVEN}) AS given ({_ALL})
ON CONFLICT (job, attempt) DO NOTHING RETURNING job, attempt
"""
_WRITE: Final = f"""
UPDATE launches SET {", ".join(f"{name} = given.{name}" for name in _CHANGING)}
FROM unnest({_GIVEN}) AS given ({_ALL})
WHERE launches.job = given.job AND launches.attempt = given.attempt
"""
_VERSIONS: Final = "SELECT nextval('fact_versions') FROM generate_series(1, $1::integer)"

# Lease what is to be launched now: the oldest first, what another replica holds is left to it.
_CLAIM_LAUNCHES: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches WHERE state = 'intent' AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET state = 'submitting', owner = $3, token = $4, deadline = $5
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in _TYPES)}
"""
# What somebody began to hand over and never finished: `asked` stays, so that the backend is asked what it has first.
_TAKE_OVER: Final = """
WITH left_over AS (
    SELECT job, attempt FROM launches WHERE state = 'submitting' AND (deadline < $1 OR owner = $2)
    FOR UPDATE SKIP LOCKED
)
UPDATE launches SET state = 'intent', asked = true, owner = NULL, token = NULL, deadline = NULL, next_at = $1
FROM left_over WHERE launches.job = left_over.job AND launches.attempt = left_over.attempt
"""
# Endings and releases are safe to work on twice: a claim only keeps others away for a while.
_CLAIM_ENDINGS: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches WHERE state = 'revoking' AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET next_at = $3, owner = $4
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in _TYPES)}
"""
_RESUME_ENDINGS: Final = "UPDATE launches SET next_at = $1 WHERE state = 'revoking' AND owner = $2"
_CLAIM_RELEASES: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches WHERE state = 'sealed' AND witnessed AND NOT released AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET next_at = $3
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in _TYPES)}
"""
_RELEASED: Final = """
WITH gone AS (
    SELECT job, attempt FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
    WHERE state = 'sealed' ORDER BY job, attempt FOR UPDATE OF launches
)
UPDATE launches SET released = true FROM gone WHERE launches.job = gone.job AND launches.attempt = gone.attempt
"""
_SEALED_AMONG: Final = f"""
SELECT {_ALL} FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
WHERE state = 'sealed'
"""

_OPEN_SINCE: Final = """
SELECT DISTINCT job FROM launches
WHERE state <> 'sealed' AND job > $1 AND coalesce(accepted_at, next_at) < $2 ORDER BY job LIMIT $3
"""


class Store:
    """Rows of `launches` and the facts told with them."""

    def __init__(self, database: Database, *, replica: str) -> None:
        self.database = database
        self._replica = replica
        self._source = f"launcher/{replica}"

    async def lock_jobs(self, tx: Tx, jobs: Sequence[str]) -> dict[str, dict[int, Launch]]:
        """Every row of these jobs, locked, by job and attempt."""
        found: dict[str, dict[int, Launch]] = {}
        for record in await tx.fetch(_LOCK_JOBS, jobs):
            row = _row(record)
            found.setdefault(row.job, {})[row.attempt] = row
        return found

    async def apply(self, tx: Tx, decisions: Sequence[Decision]) -> set[str]:
        """Write what was decided and tell what was asked; the jobs whose row somebody else has begun meanwhile."""
        begun = [row for decision in decisions for row in decision.begun]
        lost: set[str] = set()
        if begun:
            inserted = {(row["job"], row["attempt"]) for row in await tx.fetch(_INSERT, *_arrays(begun))}
            lost = {row.job for row in begun if row.key not in inserted}
        decisions = [decision for decision in decisions if not any(row.job in lost for row in decision.begun)]
        changed = {row.key: row for decision in decisions for row in decision.changed}
        answered = [changed.get(row.key, row) for decision in decisions for row in decision.answered]
        answered = [replace(row, answers=row.answers + 1) for row in answered]
        changed |= {row.key: row for row in answered}
        await self._write(tx, list(changed.values()))
        await tx.enqueue(
            [_outgoing(fact, answer=row.answers) for row in answered for fact in facts.latest(row, self._source)]
        )
        return lost

    async def claim_launches(self, limit: int, token: str, deadline: datetime, now: datetime) -> list[Launch]:
        """Up to `limit` launches that are due, leased to this replica until `deadline`."""
        rows = await self.database.fetch(_CLAIM_LAUNCHES, now, limit, self._replica, token, deadline)
        return sorted((_row(row) for row in rows), key=lambda row: (row.next_at, row.key))

    async def take_over(self, now: datetime, *, at_start: bool) -> int:
        """Put back launches whose lease ran out; at the start also those that this replica left behind."""
        tag = await self.database.execute(_TAKE_OVER, now, self._replica if at_start else None)
        if at_start:
            await self.database.execute(_RESUME_ENDINGS, now, self._replica)
        return int(tag.split()[-1])

    async def record_launches(self, rows: Sequence[Launch], token: str) -> list[Launch]:
        """Write the backend's answers where the lease still holds, and tell `accepted`; the rows that were written."""
        async with self.database.transaction() as tx:
            held = {row.key: row for row in await self._lock(tx, rows)}
            wanted = [
                _merged(row, held[row.key])
                for row in rows
                if row.key in held and held[row.key].state is State.SUBMITTING and held[row.key].token == token
            ]
            taken = [row for row in wanted if row.state is State.SUBMITTED]
            versions = iter(await self._versions(tx, len(taken)))
            wanted = [
                replace(row, accepted_n=next(versions)) if row.state is State.SUBMITTED else row for row in wanted
            ]
            await self._write(tx, wanted)
            await tx.enqueue(
                [_outgoing(facts.accepted(row, self._source)) for row in wanted if row.state is State.SUBMITTED]
            )
        return wanted

    async def claim_endings(self, limit: int, until: datetime, now: datetime) -> list[Launch]:
        """Up to `limit` launches that are to end now; nobody else looks at them before `until`."""
        return [_row(row) for row in await self.database.fetch(_CLAIM_ENDINGS, now, limit, until, self._replica)]

    async def record_endings(self, rows: Sequence[Launch]) -> list[Launch]:
        """Seal the rows that are `sealed` here and not yet there, telling it; write back the waiting ones."""
        async with self.database.transaction() as tx:
            held = {row.key: row for row in await self._lock(tx, rows)}
            wanted = [
                _merged(row, held[row.key]) for row in rows if row.key in held and held[row.key].state is State.REVOKING
            ]
            ended = [row for row in wanted if row.state is State.SEALED]
            versions = iter(await self._versions(tx, len(ended)))
            wanted = [replace(row, sealed_n=next(versions)) if row.state is State.SEALED else row for row in wanted]
            await self._write(tx, wanted)
            await tx.enqueue(
                [
                    _outgoing(fact)
                    for row in wanted
                    if row.state is State.SEALED
                    for fact in facts.sealed(row, self._source)
                ]
            )
        return wanted

    async def claim_releases(self, limit: int, until: datetime, now: datetime) -> list[Launch]:
        """Sealed launches whose records at the backend may go."""
        return [_row(row) for row in await self.database.fetch(_CLAIM_RELEASES, now, limit, until)]

    async def mark_released(self, keys: Sequence[tuple[str, int]]) -> None:
        """Their records at the backend are gone from what it shows."""
        if keys:
            await self.database.execute(_RELEASED, *zip(*keys, strict=True))

    async def sealed_among(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Launch]:
        """The rows of these attempts that are sealed."""
        if not keys:
            return {}
        rows = await self.database.fetch(_SEALED_AMONG, *zip(*keys, strict=True))
        return {row.key: row for row in map(_row, rows)}

    async def open_since(self, after: str, before: datetime, limit: int) -> list[str]:
        """Jobs with a launch that is not sealed and that began before `before`: the next ones after the job `after`."""
        return [row["job"] for row in await self.database.fetch(_OPEN_SINCE, after, before, limit)]

    async def _lock(self, tx: Tx, rows: Sequence[Launch]) -> list[Launch]:
        keys = ([row.job for row in rows], [row.attempt for row in rows])
        return [_row(row) for row in await tx.fetch(_LOCK_ROWS, *keys)]

    async def _versions(self, tx: Tx, count: int) -> list[int]:
        """Fact versions, taken while the rows that they are for are locked."""
        return [row[0] for row in await tx.fetch(_VERSIONS, count)] if count else []

    async def _write(self, tx: Tx, rows: Sequence[Launch]) -> None:
        if rows:
            await tx.execute(_WRITE, *_arrays(rows))


def _merged(mine: Launch, held: Launch) -> Launch:
    """My work's result over what events have changed in the row meanwhile."""
    grace = [seconds for seconds in (mine.grace_seconds, held.grace_seconds) if seconds is not None]
    return replace(
        mine,
        epoch=held.epoch,
        seq=held.seq,
        witnessed=held.witnessed,
        answers=held.answers,
        directory=held.directory,
        grace_seconds=min(grace, default=None),
        next_at=min(mine.next_at, held.next_at) if _hurried(mine, held) else mine.next_at,
    )


def _hurried(mine: Launch, held: Launch) -> bool:
    """Whether an event asked to look again, or for a shorter grace, since the row was claimed."""
    return held.seen != mine.seen


def _arrays(rows: Sequence[Launch]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in _TYPES]


def _row(record: asyncpg.Record) -> Launch:
    values = dict(record)
    values["state"] = State(values["state"])
    return Launch(**values)


def _outgoing(fact: AnyFact, *, answer: int | None = None) -> Outgoing:
    wire = encode_fact("launcher", fact, answer=answer)
    return Outgoing(wire.subject, wire.msg_id, wire.key, wire.body)


assert {field.name for field in fields(Launch)} == set(_TYPES), "every column is in the row, and the other way round"
