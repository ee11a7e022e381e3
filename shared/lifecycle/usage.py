"""GPU time: segments of an attempt with their integer milliseconds, folded ones as sums."""

from datetime import datetime, timedelta
from typing import Any, Literal

from shared.lifecycle import facts as f
from shared.lifecycle.picture import Picture, last_seen_at
from shared.lifecycle.reasons import REASONS
from shared.lifecycle.record import Attempt, Folded, JobRecord, Segment
from shared.lifecycle.verdict import exit_reason


def segments(attempt: Attempt, seen: Picture, gpus: int) -> tuple[Segment, ...]:
    """The attempt's periods of holding GPUs, oldest first, with their GPU time where they have ended.

    A segment whose end was not seen ends at its last confirmed sighting, marked estimated, once a later segment began,
    once it is `lost`, or once the attempt is sealed.
    """
    last = len(seen.segments) - 1
    return tuple(
        _segment(key, said, gpus, over=index < last or seen.lost is not None or attempt.sealed, lost=seen.lost)
        for index, (key, said) in enumerate(seen.segments)
    )


def _segment(key: f.SegmentKey, said: dict[str, Any], gpus: int, *, over: bool, lost: f.Lost | None) -> Segment:
    running: f.SeenRunning | None = said.get("seen_running")
    ends: list[f.Exited | f.SegmentRequeued] = [said[kind] for kind in ("exited", "segment_requeued") if kind in said]
    end = max(ends, key=lambda fact: (fact.version.epoch, fact.version.n), default=None)
    started = running.started_at if running is not None else None
    if end is not None:
        started = end.started_at or started
        exited = isinstance(end, f.Exited)
        return _closed(
            Segment(key=key, started_at=started, gpus=gpus),
            end.ended_at,
            "exited" if exited else "requeued",
            max(end.suspended_ms, _suspended_ms(running, end.ended_at)),
            estimated=end.estimated,
            billable=isinstance(end, f.Exited) and REASONS[exit_reason(end)].billable,
        )
    if running is None:
        return Segment(key=key, gpus=gpus)
    if not over:
        return Segment(
            key=key,
            started_at=started,
            gpus=gpus,
            suspended_since=running.suspended_since,
            suspended_ms=running.suspended_ms,
        )
    ended = running.suspended_since or last_seen_at(running, lost)
    base = Segment(key=key, started_at=started, gpus=gpus)
    return _closed(base, ended, "lost", running.suspended_ms, estimated=True, billable=False)


def _suspended_ms(running: f.SeenRunning | None, until: datetime) -> int:
    """Suspended time as it was sighted: earlier suspensions, and one that was still open at the end."""
    if running is None:
        return 0
    since = running.suspended_since
    return running.suspended_ms + (0 if since is None else max(0, _milliseconds(until - since)))


def _closed(
    base: Segment,
    ended_at: datetime,
    ended: Literal["exited", "requeued", "lost"],
    suspended_ms: int,
    *,
    estimated: bool,
    billable: bool,
) -> Segment:
    """A clock that went backwards gives 0, never a negative time."""
    wall_ms = 0 if base.started_at is None else _milliseconds(ended_at - base.started_at)
    return base.model_copy(
        update={
            "ended_at": ended_at,
            "ended": ended,
            "estimated": estimated,
            "suspended_ms": suspended_ms,
            "gpu_milliseconds": max(0, wall_ms - suspended_ms) * base.gpus,
            "billable": billable,
        }
    )


def _milliseconds(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)


def fold(
    folded: Folded | None, ended: tuple[Segment, ...], until: f.SegmentKey | None, last_sighting: f.Version | None
) -> Folded:
    """The sums after `ended` were added, which no evidence will be kept of."""
    before = folded or Folded()
    started = [segment.started_at for segment in ended if segment.started_at is not None]
    total = sum(segment.gpu_milliseconds or 0 for segment in ended)
    unbilled = sum(segment.gpu_milliseconds or 0 for segment in ended if not segment.billable)
    return Folded(
        segments=before.segments + len(ended),
        started_at=min([*started, *([before.started_at] if before.started_at is not None else [])], default=None),
        up_ms=before.up_ms + sum(_up_ms(segment) for segment in ended),
        gpu_milliseconds=before.gpu_milliseconds + total,
        not_billable_gpu_milliseconds=before.not_billable_gpu_milliseconds + unbilled,
        estimated=before.estimated or any(segment.estimated for segment in ended),
        until=until,
        last_sighting=last_sighting,
    )


def gpu_milliseconds(record: JobRecord, now: datetime) -> int:
    """The job's GPU time over all attempts and segments, with the running segment up to `now`."""
    total = 0 if record.earlier is None else record.earlier.gpu_milliseconds
    for attempt in record.attempts:
        total += 0 if attempt.folded is None else attempt.folded.gpu_milliseconds
        total += sum(_so_far(segment, now) for segment in attempt.segments)
    return total


def up_ms(attempt: Attempt) -> int:
    """How long the command was up, in this attempt and the ones before it, as far as its segments have ended."""
    folded = 0 if attempt.folded is None else attempt.folded.up_ms
    return attempt.up_before_ms + folded + sum(_up_ms(segment) for segment in attempt.segments)


def remaining_seconds(record: JobRecord) -> int | None:
    """What is left of the time limit for a launch of the current attempt, or of the next: a workstation's counts over
    all attempts, a batch job's anew in each. None: no limit. The record of a job event says the same."""
    limit = record.resources.time_limit_seconds
    if limit is None or record.kind != "workstation":
        return limit
    return max(0, limit - up_ms(record.current) // 1000)


def _up_ms(segment: Segment) -> int:
    if segment.started_at is None or segment.ended_at is None:
        return 0
    return max(0, _milliseconds(segment.ended_at - segment.started_at) - segment.suspended_ms)


def _so_far(segment: Segment, now: datetime) -> int:
    if segment.gpu_milliseconds is not None:
        return segment.gpu_milliseconds
    if segment.started_at is None:
        return 0
    wall_ms = _milliseconds((segment.suspended_since or now) - segment.started_at)
    return max(0, wall_ms - segment.suspended_ms) * segment.gpus
