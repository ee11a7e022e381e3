"""What was seen of a job's attempts, in words: where, when and by whom. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from pydantic import AwareDatetime

from shared.lifecycle import facts as f
from shared.lifecycle.picture import segment_of
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import Attempt, JobRecord
from shared.lifecycle.states import Desired

MOST: Final = 20
"""What is told of one attempt at most, the newest."""


class Seen(f.Frozen):
    """One thing that was seen: `where` is a cluster, or a place on it; `at` when it happened, `seen_by` who says so."""

    attempt: int
    what: str
    where: str | None = None
    at: AwareDatetime
    seen_by: str


def evidence(record: JobRecord) -> list[Seen]:
    """Of every attempt that is kept what was seen of it, in the order in which it happened; of older ones how they
    ended."""
    found: list[Seen] = []
    for attempt in record.attempts:
        told = sorted(_of(record, attempt), key=lambda seen: seen.at)
        found += [*told[:1], *told[1:][-(MOST - 1) :]]
    return found


def _of(record: JobRecord, attempt: Attempt) -> Iterator[Seen]:
    began = {
        "submit": f"{record.user} submitted it",
        "resume": "it was resumed",
        "retry": "it was retried by hand",
        "automatic": "it was retried by itself",
    }[attempt.origin]
    after = "" if attempt.began_after is None else f"; before that: {attempt.began_after}"
    yield Seen(attempt=attempt.number, what=began + after, at=attempt.queued_at, seen_by="api")
    if attempt.admitted_at is not None:
        what = "let through its gates" if attempt.admission else "found at the backend, and taken as let through"
        yield Seen(attempt=attempt.number, what=what, at=attempt.admitted_at, seen_by="gatekeeper")
    clusters = [fact.cluster for fact in attempt.evidence if isinstance(fact, f.Accepted)]
    if attempt is record.current and (wished := _wished(record)) is not None:
        yield wished
    for fact in sorted(attempt.evidence, key=lambda fact: fact.at):
        about = segment_of(fact)
        where = (clusters[-1] if clusters else None) if about is not None or isinstance(fact, f.GpusFreed) else None
        yield Seen(attempt=attempt.number, what=words(fact), where=where, at=happened(fact), seen_by=fact.source)
    if attempt.finished_at is not None and attempt.message is not None:
        what = f"attempt {attempt.number} ended: {attempt.message}"
        yield Seen(attempt=attempt.number, what=what, at=attempt.finished_at, seen_by="api")


def _wished(record: JobRecord) -> Seen | None:
    """Who asked that it be stopped or paused, however it ended then."""
    wish = record.wish
    if wish is None or record.desired_state is Desired.RUN or record.end_reason is EndReason.UPSTREAM_FAILED:
        return None
    verb = "stop" if record.desired_state is Desired.STOPPED else "pause"
    how = ", by force" if wish.force else ""
    why = f": {wish.reason}" if wish.reason else ""
    return Seen(attempt=record.attempt, what=f"{wish.actor} asked to {verb} it{how}{why}", at=wish.at, seen_by="api")


def happened(fact: f.AnyFact) -> datetime:
    """When what a fact says took place, which may be well before it was seen: others tell meanwhile of what came
    after it."""
    match fact:
        case f.Accepted():
            return fact.segment.created_at
        case f.SeenRunning():
            return fact.started_at
        case f.SegmentRequeued() | f.Exited():
            return fact.ended_at
        case _:
            return fact.at


def words(fact: f.AnyFact) -> str:
    """What a fact says; when it `happened` is told beside it."""
    match fact:
        case f.InputValid():
            return "inputs and command check out" + "".join(f"; {warning}" for warning in fact.warnings)
        case f.InputInvalid():
            return f"the input was refused: {fact.findings[0].message}"
        case f.Staged():
            return f"inputs staged in {fact.directory}"
        case f.StagingFailed() | f.LaunchRefused():
            what = "inputs not staged in" if isinstance(fact, f.StagingFailed) else "the launch was refused"
            return f"{what}: {fact.message}"
        case f.StagingSealed() | f.Recopied():
            return _copied(fact)
        case f.Accepted():
            return f"taken by {fact.backend} as {fact.ref}"
        case f.LauncherSealed():
            return "nothing of it runs any more" if fact.ran else "it never started, and cannot any more"
        case f.GpusFreed():
            return "what it held is free"
        case f.Admitted():
            return "let through its gates"
        case f.Held():
            return f"held at {fact.gates[0].name}: {fact.gates[0].reason}"
        case f.PolicyStop() | f.PolicyPause():
            return f"policy {fact.policy} asked for a {fact.kind.removeprefix('policy_')}: {fact.reason}"
        case _:
            return _sighting(fact)


def _copied(fact: f.StagingSealed | f.Recopied) -> str:
    said = {
        "none": "no outputs to copy back",
        "verified": f"outputs are back and verified: {_count(fact.files, 'file')}, {_count(fact.size_bytes, 'byte')}",
        "missing": "declared outputs are missing",
        "failed": "outputs could not be copied back",
        "expectation_failed": "an expectation does not hold",
    }[fact.outcome]
    missing = ", ".join(fact.missing) if isinstance(fact, f.StagingSealed) else ""
    return ": ".join(part for part in (said, missing or fact.message) if part)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sighting(fact: f.SeenPending | f.SeenRunning | f.SegmentRequeued | f.Exited | f.Lost | f.SeenIdle) -> str:
    match fact:
        case f.SeenPending():
            return f"not started yet: {fact.raw_reason or fact.raw_state}"
        case f.SeenRunning():
            suspended = "" if fact.suspended_since is None else ", suspended by the backend"
            return f"its command runs{suspended}"
        case f.SegmentRequeued():
            return f"requeued by the backend: {fact.raw_reason}"
        case f.Exited():
            how = (
                f"signal {fact.signal}" if fact.signal else "no exit code" if fact.code is None else f"code {fact.code}"
            )
            told = ", as its own runner reported" if fact.self_reported else ""
            stopped = ", after it was asked to end" if fact.stop_recorded else ""
            about = ", time estimated" if fact.estimated else ""
            said = f": {fact.message}" if fact.message else ""
            return f"exited with {how}{stopped}{told}{about}{said}"
        case f.Lost():
            last = "" if fact.last_seen_at is None else f", last seen at {clock(fact.last_seen_at)}"
            return f"gone from the backend, and nobody saw its end{last}"
        case f.SeenIdle():
            return "in use" if fact.idle_since is None else f"idle since {clock(fact.idle_since)}"


def clock(at: datetime) -> str:
    """A time of the day, to the second."""
    return f"{at:%H:%M:%S} UTC"
