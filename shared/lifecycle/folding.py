"""How a record stays small whatever happens to its job: the oldest segments and attempts are kept as sums.

Within the bounds evidence commutes fully. Beyond them a late correction of a folded segment is ignored here; metering,
which had every segment by its key, is where such a correction belongs.
"""

from typing import Final

from shared.lifecycle import facts as f
from shared.lifecycle.picture import last_sighting, not_after, picture, segment_of
from shared.lifecycle.record import Attempt, Folded, Segment
from shared.lifecycle.usage import fold

KEPT_SEGMENTS: Final = 4
"""Segments of an attempt that are kept with their evidence once they have ended."""
MOST_SEGMENTS: Final = 8
"""Segments of an attempt that are kept with their evidence even where an end was not seen."""
KEPT_EVIDENCE: Final = 3
"""Attempts, the current one among them, that are kept with their evidence."""
KEPT_ATTEMPTS: Final = 10
"""Attempts that are kept at all."""


def fold_segments(attempt: Attempt, *, kept: int = KEPT_SEGMENTS, most: int = MOST_SEGMENTS) -> Attempt:
    """The attempt with its oldest segments folded: those that ended down to `kept`, any down to `most`."""
    count = len(attempt.segments)
    if count <= kept:
        return attempt
    ended = next((n for n, segment in enumerate(attempt.segments) if not _end_seen(segment)), count)
    folding = max(min(ended, count - kept), count - most)
    if folding <= 0:
        return attempt
    gone, stay = attempt.segments[:folding], attempt.segments[folding:]
    until = gone[-1].key
    newest = picture(attempt).accepted
    evidence = tuple(fact for fact in attempt.evidence if fact is newest or not _is_about(fact, until))
    folded = fold(attempt.folded, gone, until, last_sighting(attempt.evidence, attempt.folded))
    return attempt.model_copy(update={"evidence": evidence, "segments": stay, "folded": folded})


def _end_seen(segment: Segment) -> bool:
    return segment.ended is not None and not segment.estimated


def _is_about(fact: f.AnyFact, until: f.SegmentKey) -> bool:
    key = segment_of(fact)
    return key is not None and not_after(key, until)


def fold_attempts(earlier: Folded | None, attempts: tuple[Attempt, ...]) -> tuple[Folded | None, tuple[Attempt, ...]]:
    """`attempts` with the evidence of all but the newest folded, and without the oldest, which `earlier` counts."""
    bare = tuple(_without_evidence(attempt) for attempt in attempts[:-KEPT_EVIDENCE])
    gone, stay = bare[: -KEPT_ATTEMPTS + KEPT_EVIDENCE], bare[-KEPT_ATTEMPTS + KEPT_EVIDENCE :]
    for attempt in gone:
        earlier = _sum(earlier, attempt)
    return earlier, (*stay, *attempts[-KEPT_EVIDENCE:])


def _without_evidence(attempt: Attempt) -> Attempt:
    if attempt.folded is not None and attempt.folded.until is None:
        return attempt
    folded = fold(attempt.folded, attempt.segments, None, None)
    return attempt.model_copy(update={"evidence": (), "segments": (), "folded": folded})


def _sum(earlier: Folded | None, attempt: Attempt) -> Folded:
    before, one = earlier or Folded(), attempt.folded or Folded()
    started = [at for at in (before.started_at, one.started_at) if at is not None]
    return Folded(
        attempts=before.attempts + 1,
        segments=before.segments + one.segments,
        started_at=min(started, default=None),
        up_ms=before.up_ms + one.up_ms,
        gpu_milliseconds=before.gpu_milliseconds + one.gpu_milliseconds,
        not_billable_gpu_milliseconds=before.not_billable_gpu_milliseconds + one.not_billable_gpu_milliseconds,
        estimated=before.estimated or one.estimated,
    )
