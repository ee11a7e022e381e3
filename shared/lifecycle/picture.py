"""What the evidence of one attempt says, read in one place: independent of the order in which it came."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shared.lifecycle import facts as f
from shared.lifecycle.record import Attempt, Folded

_OF_A_SEGMENT: Final = (f.Accepted, f.SeenPending, f.SeenRunning, f.SegmentRequeued, f.Exited)
_SIGHTINGS: Final = (f.SeenPending, f.SeenRunning, f.SegmentRequeued, f.Exited)


def segment_of(fact: f.FactBase) -> f.SegmentKey | None:
    """The segment that a fact speaks of, none for facts about the attempt."""
    return fact.segment if isinstance(fact, _OF_A_SEGMENT) else None


def merge(evidence: tuple[f.AnyFact, ...], fact: f.AnyFact) -> tuple[f.AnyFact, ...] | None:
    """`evidence` with `fact` in it, in a canonical order; None where it holds an equal or newer one already."""
    key = _key(fact)
    kept = [fact]
    for known in evidence:
        if _key(known) != key:
            kept.append(known)
        elif not known.version < fact.version:
            return None
    return tuple(sorted(kept, key=_key))


def _key(fact: f.AnyFact) -> tuple[str, str, int]:
    segment = segment_of(fact)
    return (fact.kind, "", 0) if segment is None else (fact.kind, segment.submission, segment.restart)


@dataclass(frozen=True, slots=True)
class Picture:
    """One attempt as its evidence shows it.

    `segments` are in order, oldest first, each with the facts about it by kind; `latest` is the newest. Submissions are
    ordered by the backend's creation time, the restarts of one by their number: clocks that disagree do not turn them
    round. What is said of a segment (pending, running, exited, requeued) is said of the latest. `lost_before` is a
    `lost`, also one that a later sighting disproved. `requeues` counts how often the backend started the attempt again.
    """

    segments: tuple[tuple[f.SegmentKey, dict[str, Any]], ...]
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
    idle: f.SeenIdle | None
    exited: f.Exited | None
    requeued: f.SegmentRequeued | None
    lost: f.Lost | None
    lost_before: f.Lost | None
    latest: f.SegmentKey | None
    reached_running: bool
    requeues: int

    @property
    def launcher_asked(self) -> bool:
        """The launcher has a vote once inputs were staged."""
        return self.staged is not None or (self.staging_sealed is not None and self.staging_sealed.staged)

    @property
    def stager_voted(self) -> bool:
        """With nothing to copy back, `staged` is the stager's vote. One with a reason counts once that is here."""
        vote = self.staging_sealed
        if vote is not None and vote.because is not None:
            return (self.input_invalid if vote.because == "input_invalid" else self.staging_failed) is not None
        return self.staging_sealed is not None or (self.staged is not None and self.staged.nothing_to_copy)

    @property
    def launcher_voted(self) -> bool:
        """A vote with a reason counts once that is here."""
        vote = self.launcher_sealed
        return vote is not None and (vote.because is None or self.refused is not None)

    @property
    def ran(self) -> bool:
        """A command was started, as far as anybody has said: how it ended is then owed."""
        return self.reached_running or (self.launcher_sealed is not None and self.launcher_sealed.ran)

    @property
    def end_known(self) -> bool:
        """How the command ended is known, or that nobody will ever know."""
        return self.exited is not None or self.lost is not None

    @property
    def sealed(self) -> bool:
        """Everybody who worked on the attempt has let go of it, and how it ended is known."""
        if not self.stager_voted or (self.launcher_asked and not self.launcher_voted):
            return False
        return self.end_known or not self.ran


_last: tuple[Attempt, Picture] | None = None


def picture(attempt: Attempt) -> Picture:
    """What an attempt's evidence says. One decision asks for it several times in a row: it is read once."""
    global _last
    known = _last
    if known is None or known[0] is not attempt:
        known = _last = attempt, _read(attempt)
    return known[1]


def _read(attempt: Attempt) -> Picture:
    whole: dict[str, Any] = {}
    keys: dict[tuple[str, int], f.SegmentKey] = {}
    about: dict[tuple[str, int], dict[str, Any]] = {}
    created: dict[str, datetime] = {}
    took: list[f.Accepted] = []
    reached = attempt.folded is not None and attempt.folded.started_at is not None
    for fact in attempt.evidence:
        key = segment_of(fact)
        if key is None:
            whole[fact.kind] = fact
            continue
        created[key.submission] = min(key.created_at, created.get(key.submission, key.created_at))
        if isinstance(fact, f.Accepted):
            took.append(fact)
        elif isinstance(fact, f.SeenRunning | f.Exited | f.SegmentRequeued) and fact.started_at is not None:
            reached = True
        if is_folded(attempt, key):
            continue
        name = (key.submission, key.restart)
        known = keys.get(name)
        if known is None or key.created_at < known.created_at:
            keys[name] = key
        about.setdefault(name, {})[fact.kind] = fact

    def order(key: f.SegmentKey) -> tuple[datetime, str, int]:
        return (created[key.submission], key.submission, key.restart)

    segments = tuple((key, about[key.submission, key.restart]) for key in sorted(keys.values(), key=order))
    latest, last = segments[-1] if segments else (None, {})
    exited, requeued = _newer_end(last.get("exited"), last.get("segment_requeued"))
    lost = whole.get("lost")
    disproved = lost is not None and (exited is not None or _seen_after(attempt, lost))
    return Picture(
        segments=segments,
        input_valid=whole.get("input_valid"),
        input_invalid=whole.get("input_invalid"),
        staged=whole.get("staged"),
        staging_failed=whole.get("staging_failed"),
        staging_sealed=whole.get("staging_sealed"),
        refused=whole.get("launch_refused"),
        launcher_sealed=whole.get("launcher_sealed"),
        gpus_freed=whole.get("gpus_freed"),
        accepted=max(took, key=lambda fact: order(fact.segment), default=None),
        pending=last.get("seen_pending"),
        running=last.get("seen_running"),
        idle=whole.get("seen_idle"),
        exited=exited,
        requeued=requeued,
        lost=None if disproved else lost,
        lost_before=lost,
        latest=latest,
        reached_running=reached,
        requeues=max((key.restart + ("segment_requeued" in said) for key, said in segments), default=0),
    )


def is_folded(attempt: Attempt, key: f.SegmentKey) -> bool:
    """Whether a segment's evidence is no longer kept, so that facts about it change nothing."""
    if attempt.folded is None:
        return False
    until = attempt.folded.until
    return until is None or not_after(key, until)


def not_after(key: f.SegmentKey, until: f.SegmentKey) -> bool:
    """Whether a segment is `until` or one before it."""
    if key.submission == until.submission:
        return key.restart <= until.restart
    return (key.created_at, key.submission) <= (until.created_at, until.submission)


def _newer_end(
    exited: f.Exited | None, requeued: f.SegmentRequeued | None
) -> tuple[f.Exited | None, f.SegmentRequeued | None]:
    """Of two ends of one segment the one that the watcher said last."""
    if exited is None or requeued is None:
        return exited, requeued
    return (None, requeued) if exited.version < requeued.version else (exited, None)


def _seen_after(attempt: Attempt, lost: f.Lost) -> bool:
    """A later sighting disproves a `lost`."""
    newest = last_sighting(attempt.evidence, attempt.folded)
    return newest is not None and lost.version < newest


def last_sighting(evidence: Iterable[f.AnyFact], folded: Folded | None) -> f.Version | None:
    """The newest version of what the watcher showed of any segment."""
    seen = [fact.version for fact in evidence if isinstance(fact, _SIGHTINGS)]
    if folded is not None and folded.last_sighting is not None:
        seen.append(folded.last_sighting)
    return max(seen, key=lambda version: (version.epoch, version.n), default=None)


def last_seen_at(running: f.SeenRunning, lost: f.Lost | None) -> datetime:
    """The last confirmed sighting of a command that was seen running."""
    return running.at if lost is None or lost.last_seen_at is None else max(running.at, lost.last_seen_at)
