"""The SQL of metering: set-based and guarded, inside one transaction that the caller opened."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from services.metering.domain import Change, Known, Reading, SegmentId, Sent
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

# The highest number of the stream that this slice knows of: what it sent later was sent in a lost time.
SENT: Final = "SELECT coalesce(max(last_seq), 0) FROM relayed WHERE stream = 'USAGE'"
STAND: Final = f"""
UPDATE segments SET
    gpus = new.gpus, started_at = new.started_at, ended_at = new.ended_at, suspended_ms = new.suspended_ms,
    gpu_milliseconds = new.gpu_milliseconds, estimated = new.estimated, billable = new.billable,
    revision = new.revision, line = new.line
FROM unnest(
    $1::text[], $2::int[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::timestamptz[], $8::bigint[],
    $9::bigint[], $10::bool[], $11::bool[], $12::int[], $13::jsonb[])
    AS new ({_KEY}, gpus, started_at, ended_at, suspended_ms, gpu_milliseconds, estimated, billable, revision, line)
WHERE (segments.job, segments.attempt, segments.submission, segments.restart)
    = (new.job, new.attempt, new.submission, new.restart)
  AND (segments.revision < new.revision OR (segments.revision = new.revision AND new.line IS NULL))
"""

_GROUPS: Final = {"tenant": "tenant", "user": 'tenant, "user"', "job": 'tenant, "user", job'}


def usage_sql(group_by: str) -> str:
    """Sums over what has ended, the most first, each row with the sums over all. $1 tenant or null, $2 job or null, $3
    the most rows."""
    group = _GROUPS[group_by]
    return f"""
    SELECT *, count(*) OVER () AS all_groups, sum(segments) OVER ()::bigint AS all_segments,
           sum(gpu_milliseconds) OVER ()::bigint AS all_gpu_milliseconds,
           sum(not_billable_gpu_milliseconds) OVER ()::bigint AS all_not_billable_gpu_milliseconds
    FROM (
        SELECT {group}, count(*) AS segments, coalesce(sum(gpu_milliseconds), 0)::bigint AS gpu_milliseconds,
               coalesce(sum(gpu_milliseconds) FILTER (WHERE NOT billable), 0)::bigint AS not_billable_gpu_milliseconds,
               bool_or(estimated) AS estimated
        FROM segments
        WHERE ended_at IS NOT NULL AND ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR job = $2)
        GROUP BY {group}
    ) AS grouped
    ORDER BY gpu_milliseconds DESC, {group} LIMIT $3
    """


class Store:
    """The slice inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    async def stand(self, found: Mapping[SegmentId, Sent]) -> None:
        """These lines stand in the ledger, unless a later one is known. The version of the newest reading stays."""
        lines = [one.newest for one in found.values()]
        stands = [one.line is not None for one in found.values()]
        await self._make(list(found), lines)
        await self._tx.execute(
            STAND,
            *_keys(list(found)),
            [line.gpus for line in lines],
            [line.started_at for line in lines],
            [line.ended_at if ended else None for line, ended in zip(lines, stands, strict=True)],
            [line.suspended_ms for line in lines],
            [line.gpu_milliseconds if ended else None for line, ended in zip(lines, stands, strict=True)],
            [line.estimated for line in lines],
            [line.billable for line in lines],
            [line.revision for line in lines],
            [line.model_dump(mode="json") if ended else None for line, ended in zip(lines, stands, strict=True)],
        )

    async def lock(self, readings: Sequence[Reading]) -> dict[SegmentId, Known]:
        """The rows of these segments, made where they are new, theirs alone until the commit."""
        await self._make([one.id for one in readings], readings)
        rows = await self._tx.fetch(LOCK, *_keys([one.id for one in readings]))
        return {
            SegmentId(*row[:4]): Known(
                (row["epoch"], row["seq"]),
                row["revision"],
                None if row["line"] is None else UsageLine.model_validate(row["line"]),
            )
            for row in rows
        }

    async def _make(self, ids: Sequence[SegmentId], segments: Sequence[Reading | UsageLine]) -> None:
        await self._tx.execute(
            MAKE,
            *_keys(ids),
            [one.tenant for one in segments],
            [one.user for one in segments],
            [one.project for one in segments],
            [one.coretype for one in segments],
            [one.gpus for one in segments],
        )

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
