"""That each end and each pause is what the command did, or what was asked, and says by whom."""

from collections.abc import Iterable, Iterator, Mapping

from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from tests.chaos.handled import Handled, Line
from tests.chaos.made import Made
from tests.chaos.runs import Attempt
from tests.chaos.versions import Versions


def untrue_ends(
    handled: Handled, told: Mapping[str, Versions], lines: Iterable[Line], casualties: set[Attempt]
) -> Iterator[str]:
    """Ends and pauses that are not so."""
    words = {(line.job, line.attempt, line.word) for line in lines}
    for job, versions in told.items():
        before: JobRecord | None = None
        for number, record in enumerate(version.record for version in versions.all):
            entered = before is not None and record.state != before.state
            before = record
            if not entered or (job, record.attempt) in casualties:
                continue
            did = {word for word in ("ended", "saved") if (job, record.attempt, word) in words}
            asked = {(one.verb, one.by_admin) for one in versions.asked_of(record.attempt, until=number)}
            suspended = versions.suspended_in(record.attempt)
            if not _is_right(handled.made[job], record, asked, did, suspended=suspended):
                yield (
                    f"{job} ({handled.made[job].kind}), attempt {record.attempt}, is {record.state} "
                    f"({record.message}), asked were {sorted(asked)}, its command says {sorted(did)}"
                )


def _is_right(made: Made, record: JobRecord, asked: set[tuple[str, bool]], did: set[str], *, suspended: bool) -> bool:
    match record.state, record.end_reason:
        case State.SUCCEEDED, _:
            right = "ended" in did or ("saved" in did and bool(asked))
            return right and not made.fails(record.attempt)
        case State.FAILED, EndReason.LOST:
            return True
        case State.FAILED, EndReason.EXIT_NONZERO:
            return "ended" in did and made.fails(record.attempt)
        case State.STOPPED, EndReason.UPSTREAM_FAILED:
            return bool(made.before)
        case State.STOPPED, EndReason.LIFETIME_OVER:
            return made.lifetime_seconds is not None
        case State.STOPPED, EndReason.STOPPED_BY_USER:
            return ("stop", False) in asked
        case State.PAUSED, EndReason.PAUSED_BY_USER:
            return ("pause", False) in asked and ("pause", True) not in asked
        case State.PAUSED, EndReason.PAUSED_BY_ADMIN:
            return ("pause", True) in asked
        case State.PAUSED, EndReason.PAUSED_BY_POLICY:
            return suspended and ("pause", False) not in asked
        case ((State.FAILED | State.STOPPED | State.PAUSED), _):
            return False
    return True


def lost(told: Mapping[str, Versions]) -> set[Attempt]:
    """Attempts of which nobody can say how they ended."""
    records = [version.record for versions in told.values() for version in versions.all]
    ended = [(record.id, attempt) for record in records for attempt in record.attempts]
    return {(job, attempt.number) for job, attempt in ended if attempt.end_reason is EndReason.LOST}
