"""What the evidence of one attempt says, read in one place: independent of the order in which it came."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from shared.lifecycle import facts as f
from shared.lifecycle.record import Attempt, Segment

FactT = TypeVar("FactT", bound=f.FactBase)


def segment_of(fact: f.FactBase) -> f.SegmentKey | None:
    """The segment that a fact speaks of, none for facts about the attempt."""
    segment = getattr(fact, "segment", None)
    return segment if isinstance(segment, f.SegmentKey) else None


def merge(evidence: tuple[f.AnyFact, ...], fact: f.AnyFact) -> tuple[f.AnyFact, ...] | None:
    """`evidence` with `fact` in it, in a canonical order; None where it holds an equal or newer one already."""
    key = _key(fact)
    for known in evidence:
        if _key(known) == key:
            if not known.version < fact.version:
                return None
            evidence = tuple(other for other in evidence if other is not known)
            break
    return tuple(sorted((*evidence, fact), key=_order))


def _key(fact: f.AnyFact) -> tuple[str, str, int]:
    segment = segment_of(fact)
    return (fact.kind, "", 0) if segment is None else (fact.kind, segment.submission, segment.restart)


def _order(fact: f.AnyFact) -> tuple[str, str, int]:
    return _key(fact)


@dataclass(frozen=True, slots=True)
class Picture:
    """One attempt as its evidence shows it. `latest` is the newest segment by the backend's creation time."""

    input_valid: f.InputValid | None
    input_invalid: f.InputInvalid | None
    staged: f.Staged | None
    staging_failed: f.StagingFailed | None
    staging_sealed: f.StagingSealed | None
    refused: f.LaunchRefused | None
    launcher_sealed: f.LauncherSealed | None
    gpus_freed: f.GpusFreed | None
    accepted: f.Accepted | None
    pending: f.SeenPending | None
    running: f.SeenRunning | None
    exited: f.Exited | None
    requeued: f.SegmentRequeued | None
    lost: f.Lost | None
    latest: f.SegmentKey | None
    reached_running: bool

    @property
    def launcher_asked(self) -> bool:
        """The launcher has a vote once inputs were staged."""
        return self.staged is not None or (self.staging_sealed is not None and self.staging_sealed.staged)

    @property
    def stager_voted(self) -> bool:
        """With nothing to copy back, `staged` is the stager's vote."""
        return self.staging_sealed is not None or (self.staged is not None and self.staged.nothing_to_copy)

    @property
    def command_over(self) -> bool:
        """No command of this attempt runs any more, or ever will, as far as anybody has said."""
        return (
            self.exited is not None
            or self.lost is not None
            or self.refused is not None
            or self.launcher_sealed is not None
            or not self.launcher_asked
        )

    @property
    def sealed(self) -> bool:
        """Everybody who worked on the attempt has let go of it, and how it ended is known."""
        if not self.stager_voted or (self.launcher_asked and self.launcher_sealed is None):
            return False
        ran = self.launcher_sealed is not None and self.launcher_sealed.ran
        return not ran or self.exited is not None or self.lost is not None


def picture(attempt: Attempt) -> Picture:
    """Read an attempt's evidence."""
    evidence = attempt.evidence
    keys = [key for fact in evidence if (key := segment_of(fact)) is not None]
    latest = max(keys, key=_segment_order, default=None)

    def about_attempt(kind: type[FactT]) -> FactT | None:
        return next((fact for fact in evidence if isinstance(fact, kind)), None)

    def about_latest(kind: type[FactT]) -> FactT | None:
        return next(
            (
                fact
                for fact in evidence
                if isinstance(fact, kind) and latest is not None and _same(segment_of(fact), latest)
            ),
            None,
        )

    exited, requeued = about_latest(f.Exited), about_latest(f.SegmentRequeued)
    if exited is not None and requeued is not None:
        exited, requeued = (None, requeued) if exited.version < requeued.version else (exited, None)
    lost = about_attempt(f.Lost)
    if lost is not None and (exited is not None or any(lost.version < w.version for w in evidence if _seen(w))):
        lost = None
    return Picture(
        input_valid=about_attempt(f.InputValid),
        input_invalid=about_attempt(f.InputInvalid),
        staged=about_attempt(f.Staged),
        staging_failed=about_attempt(f.StagingFailed),
        staging_sealed=about_attempt(f.StagingSealed),
        refused=about_attempt(f.LaunchRefused),
        launcher_sealed=about_attempt(f.LauncherSealed),
        gpus_freed=about_attempt(f.GpusFreed),
        accepted=about_latest(f.Accepted),
        pending=about_latest(f.SeenPending),
        running=about_latest(f.SeenRunning),
        exited=exited,
        requeued=requeued,
        lost=lost,
        latest=latest,
        reached_running=any(_started(fact) is not None for fact in evidence),
    )


def segments(attempt: Attempt, seen: Picture, gpus: int) -> tuple[Segment, ...]:
    """The attempt's periods of holding GPUs, oldest first, with their GPU time where they have ended.

    A later segment ends an earlier one whose end was not seen, at its last confirmed sighting and marked estimated
    (an unseen end counts to the last sighting); so does `lost`.
    """
    keys = {(k.submission, k.restart): k for fact in attempt.evidence if (k := segment_of(fact)) is not None}
    ordered = sorted(keys.values(), key=_segment_order)
    return tuple(
        _segment(attempt, key, gpus, is_latest=index == len(ordered) - 1, lost=seen.lost)
        for index, key in enumerate(ordered)
    )


def _segment(attempt: Attempt, key: f.SegmentKey, gpus: int, *, is_latest: bool, lost: f.Lost | None) -> Segment:
    about = [fact for fact in attempt.evidence if _same(segment_of(fact), key)]
    running = next((fact for fact in about if isinstance(fact, f.SeenRunning)), None)
    ends = [fact for fact in about if isinstance(fact, f.Exited | f.SegmentRequeued)]
    end = max(ends, key=lambda fact: (fact.version.epoch, fact.version.n), default=None)
    started = end.started_at if end is not None and end.started_at is not None else running and running.started_at
    base = Segment(key=key, started_at=started, gpus=gpus)
    if end is not None:
        requeued = isinstance(end, f.SegmentRequeued)
        return _closed(
            base,
            end.ended_at,
            "requeued" if requeued else "exited",
            end.suspended_ms,
            end.estimated,
            billable=not requeued,
        )
    if running is None:
        return base
    if is_latest and lost is None:
        return base.model_copy(
            update={"suspended_since": running.suspended_since, "suspended_ms": running.suspended_ms}
        )
    seen = running.at if lost is None or lost.last_seen_at is None else max(running.at, lost.last_seen_at)
    return _closed(base, running.suspended_since or seen, "lost", running.suspended_ms, True, billable=False)


def _closed(
    base: Segment, ended_at: datetime, ended: str, suspended_ms: int, estimated: bool, *, billable: bool
) -> Segment:
    """A clock that went backwards gives 0, never a negative time."""
    wall_ms = 0 if base.started_at is None else round((ended_at - base.started_at).total_seconds() * 1000)
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


def _started(fact: f.AnyFact) -> datetime | None:
    return fact.started_at if isinstance(fact, f.SeenRunning | f.Exited | f.SegmentRequeued) else None


def _seen(fact: f.AnyFact) -> bool:
    return isinstance(fact, f.SeenPending | f.SeenRunning | f.SegmentRequeued | f.Exited)


def _same(one: f.SegmentKey | None, other: f.SegmentKey) -> bool:
    return one is not None and (one.submission, one.restart) == (other.submission, other.restart)


def _segment_order(key: f.SegmentKey) -> tuple[datetime, str, int]:
    return (key.created_at, key.submission, key.restart)
