"""The SQL of metering: set-based and guarded, inside one transaction that the caller opened."""

from collections.abc import Collection, Sequence
from typing import Final

from services.metering.domain import Change, Known, Reading, SegmentId
from shared.contracts.usage import UsageLine
from shared.runtime.database import Tx

_KEY: Final = "job, attempt, submission, restart"
_KEYS: Final = "unnest($1::text[], $2::int[], $3::text[], $4::int[])"

# A row for each segment, so that there is something to lock; version (0, 0) says that nothing was read into it yet.
MAKE: Final = f"""
INSERT INTO segments ({_KEY}, tenant, "user", project, coretype, gpus, epoch, seq)
SELECT {_KEY}, tenant, "user", project, coretype, gpus, 0, 0
FROM unnest($1::text[], $2::int[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[])
    AS new ({_KEY}, tenant, "user", project, coretype, gpus)
ORDER BY {_KEY} ON CONFLICT DO NOTHING
"""
LOCK: Final = f"""
SELECT {_KEY}, epoch, seq, revision, line FROM segments
WHERE ({_KEY}) IN (SELECT * FROM {_KEYS}) ORDER BY {_KEY} FOR UPDATE
"""
WRITE: Final = f"""
UPDATE segments SET
    epoch = new.epoch, seq = new.seq, gpus = new.gpus, started_at = new.started_at, ended_at = new.ended_at,
    ended = new.ended, suspended_ms = new.suspended_ms, gpu_milliseconds = new.gpu_milliseconds,
    estimated = new.estimated, billable = new.billable, revision = new.revision, line = new.line
FROM unnest(
    $1::text[], $2::int[], $3::text[], $4::int[], $5::int[], $6::bigint[], $7::int[], $8::timestamptz[],
    $9::timestamptz[], $10::text[], $11::bigint[], $12::bigint[], $13::bool[], $14::bool[], $15::int[], $16::jsonb[])
    AS new ({_KEY}, epoch, seq, gpus, started_at, ended_at, ended, suspended_ms, gpu_milliseconds, estimated,
            billable, revision, line)
WHERE (segments.job, segments.attempt, segments.submission, segments.restart)
    = (new.job, new.attempt, new.submission, new.restart)
"""

_GROUPS: Final = {"tenant": "tenant", "user": 'tenant, "user"', "job": 'tenant, "user", job'}


def usage_sql(group_by: str) -> str:
    """Sums over what has ended, the most first. $1 tenant or null, $2 job or null, $3 the most rows."""
    group = _GROUPS[group_by]
    return f"""
    SELECT {group}, count(*) AS segments, coalesce(sum(gpu_milliseconds), 0)::bigint AS gpu_milliseconds,
           coalesce(sum(gpu_milliseconds) FILTER (WHERE NOT billable), 0)::bigint AS not_billable_gpu_milliseconds,
           bool_or(estimated) AS estimated
    FROM segments
    WHERE ended_at IS NOT NULL AND ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR job = $2)
    GROUP BY {group} ORDER BY sum(gpu_milliseconds) DESC, {group} LIMIT $3
    """


class Store:
    """The slice inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    async def lock(self, readings: Sequence[Reading]) -> dict[SegmentId, Known]:
        """The rows of these segments, made where they are new, theirs alone until the commit."""
        await self._tx.execute(
            MAKE,
            *_keys([one.id for one in readings]),
            [one.tenant for one in readings],
            [one.user for one in readings],
            [one.project for one in readings],
            [one.coretype for one in readings],
            [one.gpus for one in readings],
        )
        rows = await self._tx.fetch(LOCK, *_keys([one.id for one in readings]))
        return {
            SegmentId(*row[:4]): Known(
                (row["epoch"], row["seq"]),
                row["revision"],
                None if row["line"] is None else UsageLine.model_validate(row["line"]),
            )
            for row in rows
        }

    async def write(self, changes: Sequence[Change]) -> None:
        """These readings are the newest, and these lines stand."""
        if changes:
            new = [change.reading for change in changes]
            await self._tx.execute(
                WRITE,
                *_keys([one.id for one in new]),
                [one.epoch for one in new],
                [one.seq for one in new],
                [one.gpus for one in new],
                [one.started_at for one in new],
                [one.ended_at for one in new],
                [one.ended for one in new],
                [one.suspended_ms for one in new],
                [one.gpu_milliseconds for one in new],
                [one.estimated for one in new],
                [one.billable for one in new],
                [change.revision for change in changes],
                [None if change.line is None else change.line.model_dump(mode="json") for change in changes],
            )


def _keys(ids: Collection[SegmentId]) -> tuple[list[str], list[int], list[str], list[int]]:
    return (
        [one.job for one in ids],
        [one.attempt for one in ids],
        [one.submission for one in ids],
        [one.restart for one in ids],
    )
