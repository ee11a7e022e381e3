"""The launcher's slice: set-based, guarded, one transaction per batch.

Whoever changes rows locks them first, in the order of their keys, so that handlers and loops never wait in a circle.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import asyncpg

from services.launcher import facts
from services.launcher import statements as sql
from services.launcher.domain import Decision, Launch, State
from shared.backends.clusters import LOCAL
from shared.contracts.facts import encode_fact
from shared.lifecycle.facts import AnyFact
from shared.runtime import failpoints
from shared.runtime.database import Database, Tx
from shared.runtime.outbox import Outgoing

Key = tuple[str, int]


class Store:
    """Rows of `launches` and the facts told with them."""

    def __init__(self, database: Database, *, replica: str, epoch: Callable[[], int]) -> None:
        """`epoch` is the one in which facts are told now."""
        self.database = database
        self._replica = replica
        self._epoch = epoch
        self._source = f"launcher/{replica}"

    async def read_jobs(self, jobs: Sequence[str]) -> tuple[dict[str, dict[int, Launch]], dict[Key, int]]:
        """Every row of these jobs by job and attempt, not locked, and what `apply_unlocked` guards each with."""
        found: dict[str, dict[int, Launch]] = {}
        guards: dict[Key, int] = {}
        for record in await self.database.fetch(sql.READ_JOBS, jobs):
            row = _row(record)
            found.setdefault(row.job, {})[row.attempt] = row
            guards[row.key] = record["guard"]
        return found, guards

    async def apply_unlocked(self, decisions: Sequence[Decision], guards: Mapping[Key, int]) -> set[str]:
        """Write what was decided, but for answers, in one statement; the jobs whose rows changed since the read."""
        begun = [row for decision in decisions for row in decision.begun]
        changed = [row for decision in decisions for row in decision.changed]
        if not begun and not changed:
            return set()
        given = (*_arrays(begun), *_arrays(changed), [guards[row.key] for row in changed])
        written = {(row["job"], row["attempt"]) for row in await self.database.fetch(sql.APPLY, *given)}
        return {row.job for row in (*begun, *changed) if row.key not in written}

    async def lock_jobs(self, tx: Tx, jobs: Sequence[str]) -> dict[str, dict[int, Launch]]:
        """Every row of these jobs, locked, by job and attempt."""
        found: dict[str, dict[int, Launch]] = {}
        for record in await tx.fetch(sql.LOCK_JOBS, jobs):
            row = _row(record)
            found.setdefault(row.job, {})[row.attempt] = row
        return found

    async def apply(self, tx: Tx, decisions: Sequence[Decision]) -> set[str]:
        """Write what was decided and tell what was asked; the jobs whose row somebody else has begun meanwhile."""
        begun = [row for decision in decisions for row in decision.begun]
        lost: set[str] = set()
        if begun:
            inserted = {(row["job"], row["attempt"]) for row in await tx.fetch(sql.INSERT, *_arrays(begun))}
            lost = {row.job for row in begun if row.key not in inserted}
        decisions = [decision for decision in decisions if not any(row.job in lost for row in decision.begun)]
        changed = {row.key: row for decision in decisions for row in decision.changed}
        answered = [changed.get(row.key, row) for decision in decisions for row in decision.answered]
        answered = [replace(row, answers=row.answers + 1) for row in answered]
        changed |= {row.key: row for row in answered}
        await self._write(tx, list(changed.values()))
        await tx.enqueue(
            [
                _outgoing(fact, answer=row.answers)
                for row in answered
                for fact in facts.latest(row, self._source, self._epoch())
            ]
        )
        return lost

    async def claim_launches(
        self, limit: int, token: str, deadline: datetime, now: datetime, cluster: str = LOCAL
    ) -> list[Launch]:
        """Up to `limit` launches that are due on a cluster, leased to this replica until `deadline`."""
        rows = await self._leased(sql.CLAIM_LAUNCHES, now, limit, self._replica, token, deadline, cluster)
        return sorted(rows, key=lambda row: (row.next_at, row.key))

    async def take_over(self, now: datetime, *, at_start: bool) -> int:
        """Put back launches whose lease ran out; at the start also those that this replica left behind."""
        tag = await self.database.execute(sql.TAKE_OVER, now, self._replica if at_start else None)
        if at_start:
            await self.database.execute(sql.RESUME_ENDINGS, now, self._replica)
        return int(tag.split()[-1])

    async def strand(self, clusters: Sequence[str]) -> list[tuple[str, int]]:
        """Note in rows of other clusters than these what they wait for; how many were noted now, by cluster."""
        return [(row["cluster"], row["count"]) for row in await self.database.fetch(sql.STRAND, clusters)]

    async def record_launches(self, rows: Sequence[Launch], token: str) -> list[Launch]:
        """Write the backend's answers where the lease still holds, and tell `accepted`; the rows that were written."""

        def decided(row: Launch, held: Launch, version: int) -> Launch | None:
            if held.state is not State.SUBMITTING or held.token != token:
                return None
            return replace(row, accepted_n=version) if row.state is State.SUBMITTED else row

        return await self._record(
            rows, decided, State.SUBMITTED, lambda row: (facts.accepted(row, self._source, self._epoch()),)
        )

    async def claim_endings(self, limit: int, until: datetime, now: datetime, cluster: str = LOCAL) -> list[Launch]:
        """Up to `limit` launches on a cluster that are to end now; nobody else looks at them before `until`."""
        return await self._leased(sql.CLAIM_ENDINGS, now, limit, until, self._replica, cluster)

    async def record_endings(self, rows: Sequence[Launch]) -> list[Launch]:
        """Seal the rows that are `sealed` here and not yet there, telling it; write back the waiting ones."""

        def decided(row: Launch, held: Launch, version: int) -> Launch | None:
            if held.state is not State.REVOKING:
                return None
            return replace(row, sealed_n=version) if row.state is State.SEALED else row

        return await self._record(
            rows, decided, State.SEALED, lambda row: facts.sealed(row, self._source, self._epoch())
        )

    async def claim_releases(self, limit: int, until: datetime, now: datetime, cluster: str = LOCAL) -> list[Launch]:
        """Sealed launches whose records at the backend may go."""
        return await self._leased(sql.CLAIM_RELEASES, now, limit, until, cluster)

    async def mark_released(self, keys: Sequence[tuple[str, int]]) -> None:
        """Their records at the backend are gone from what it shows."""
        if keys:
            await self.database.execute(sql.RELEASED, *zip(*keys, strict=True))

    async def sealed_among(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Launch]:
        """The rows of these attempts that are sealed."""
        if not keys:
            return {}
        rows = await self.database.fetch(sql.SEALED_AMONG, *zip(*keys, strict=True))
        return {row.key: row for row in map(_row, rows)}

    async def open_since(self, after: str, before: datetime, limit: int) -> list[str]:
        """Jobs with a launch that is not sealed and that began before `before`: the next ones after the job `after`."""
        return [row["job"] for row in await self.database.fetch(sql.OPEN_SINCE, after, before, limit)]

    async def _leased(self, claim: str, *given: Any) -> list[Launch]:
        rows = [_row(row) for row in await self.database.fetch(claim, *given)]
        if rows:
            failpoints.reach("lease.after")
        return rows

    async def _record(
        self,
        rows: Sequence[Launch],
        decided: Callable[[Launch, Launch, int], Launch | None],
        told_in: State,
        told: Callable[[Launch], Sequence[AnyFact]],
    ) -> list[Launch]:
        """Write what work has made of rows, where `decided` finds them as the work left them, and tell it with them."""
        async with self.database.transaction() as tx:
            keys = ([row.job for row in rows], [row.attempt for row in rows])
            held = {(found["job"], found["attempt"]): found for found in await tx.fetch(sql.LOCK_ROWS, *keys)}
            written = []
            for row in rows:
                if (found := held.get(row.key)) is not None:
                    now_there = _row(found)
                    result = decided(_merged(row, now_there), now_there, found["version"])
                    written += [] if result is None else [result]
            await self._write(tx, written)
            await tx.enqueue([_outgoing(fact) for row in written if row.state is told_in for fact in told(row)])
        return written

    async def _write(self, tx: Tx, rows: Sequence[Launch]) -> None:
        if rows:
            await tx.execute(sql.WRITE, *_arrays(rows))


def _merged(mine: Launch, held: Launch) -> Launch:
    """My work's result over what events have changed in the row meanwhile."""
    grace = [seconds for seconds in (mine.grace_seconds, held.grace_seconds) if seconds is not None]
    wanted = replace(mine, grace_seconds=min(grace, default=None))
    if mine.pausing and not held.pausing:  # a stop came, and what was asked of the backend meanwhile was the pause
        wanted = replace(
            mine,
            grace_seconds=held.grace_seconds,
            pausing=False,
            stop_asked_at=held.stop_asked_at,
            stop_asked_grace=held.stop_asked_grace,
        )
    return replace(
        wanted,
        epoch=held.epoch,
        seq=held.seq,
        witnessed=held.witnessed,
        answers=held.answers,
        directory=held.directory,
        stop_signal=held.stop_signal,
        next_at=min(mine.next_at, held.next_at) if _hurried(mine, held) else mine.next_at,
    )


def _hurried(mine: Launch, held: Launch) -> bool:
    """Whether an event asked to look again, or for a shorter grace, since the row was claimed."""
    return held.seen != mine.seen


def _arrays(rows: Sequence[Launch]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in sql.TYPES]


def _row(record: asyncpg.Record) -> Launch:
    values = {name: record[name] for name in sql.TYPES}
    values["state"] = State(values["state"])
    return Launch(**values)


def _outgoing(fact: AnyFact, *, answer: int | None = None) -> Outgoing:
    wire = encode_fact("launcher", fact, answer=answer)
    return Outgoing(wire.subject, wire.msg_id, wire.key, wire.body)


assert {field.name for field in fields(Launch)} == set(sql.TYPES), "every column is in the row, and the other way round"
