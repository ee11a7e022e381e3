"""What holds of workstations: only what nobody uses is suspended, not before its time, not while that is put off; none
is up for less, or goes on after more, than its lifetime; each says in its phase what it is."""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, Desired, Phase, State
from tests.chaos.handled import Handled, Line
from tests.chaos.made import IDLE_SECONDS
from tests.chaos.runs import Attempt, Ends
from tests.chaos.versions import Suspended, Versions


def wrong_at_desks(
    handled: Handled, told: Mapping[str, Versions], lines: Iterable[Line], ends: Ends, casualties: set[Attempt]
) -> Iterator[str]:
    """What is not so."""
    began = {(line.job, line.attempt): line.at for line in lines if line.word == "began"}
    harmed = {job for job, _ in casualties}
    for job, versions in told.items():
        kind = handled.made[job].kind
        found = [what for one in versions.suspended for what in _wrongly_suspended(job, kind, one, versions, began)]
        found += _in_another_phase(versions, is_desk=handled.made[job].is_desk)
        limit = handled.made[job].lifetime_seconds
        if limit is not None and job not in harmed:  # nobody knows how long what was killed was up
            found += _another_lifetime(limit * 1000, versions, _by_attempt(job, ends), _by_attempt(job, began))
        yield from (f"{job} ({kind}): {what}" for what in found)


def _wrongly_suspended(
    job: str, kind: str, one: Suspended, versions: Versions, began: Mapping[Attempt, float]
) -> Iterator[str]:
    if kind != "idle":
        yield f"a policy suspends attempt {one.attempt}"
    elif one.at < (since := began.get((job, one.attempt), inf)) + IDLE_SECONDS[kind]:
        yield f"attempt {one.attempt} was suspended {one.at - since:.3f} s after it began"
    snoozed = [asked for asked in versions.asked if asked.verb == "snooze" and asked.version < one.version]
    if snoozed and snoozed[-1].until is not None and one.at < snoozed[-1].until:
        yield f"attempt {one.attempt} was suspended {snoozed[-1].until - one.at:.3f} s before that was put off to"


def _in_another_phase(versions: Versions, *, is_desk: bool) -> Iterator[str]:
    for record in (version.record for version in versions.all):
        if record.phase not in (_phases(record) if is_desk else (None,)):
            yield f"version {record.seq} is {record.state}, desired {record.desired_state}, in phase {record.phase}"


def _phases(record: JobRecord) -> tuple[Phase | None, ...]:
    if record.state is State.PAUSED:
        return (Phase.SUSPENDED,)
    if record.state in ACTIVE and record.desired_state is Desired.PAUSED:
        return (Phase.SUSPENDING,)
    return (Phase.ACTIVE,) if record.state is State.RUNNING else (None,)


def _another_lifetime(
    limit_ms: int, versions: Versions, up_ms: Mapping[int, int], began: Iterable[int]
) -> Iterator[str]:
    for record in (version.record for version in versions.all):
        up = sum(milliseconds for attempt, milliseconds in up_ms.items() if attempt <= record.attempt)
        if record.end_reason is EndReason.LIFETIME_OVER and up < limit_ms:
            yield f"its lifetime of {limit_ms} ms was called over after {up} ms"
    for attempt in began:
        up = sum(milliseconds for earlier, milliseconds in up_ms.items() if earlier < attempt)
        if up >= limit_ms:
            yield f"attempt {attempt} began after it was up for {up} of {limit_ms} ms"


def _by_attempt(job: str, ends: Ends | Mapping[Attempt, float]) -> dict[int, int]:
    of = ends.milliseconds() if isinstance(ends, Ends) else ends
    return {attempt: int(value) for (whose, attempt), value in of.items() if whose == job}
