"""What is tried again by itself: as often as allowed and no more, nothing else, not before its cooldown is over; and
FAILED is told only where nothing follows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, TERMINAL, State
from tests.chaos.handled import Handled, Line
from tests.chaos.runs import Ends, without_an_end
from tests.chaos.versions import Version, Versions

COOLDOWN_SECONDS: Final = 15
"""Before the first automatic retry; twice as long before each further one."""
_OWN: Final = EndReason.EXIT_NONZERO
_LOST: Final = EndReason.LOST


class Retrying:
    """The automatic retries of one history; `count` says how many there were."""

    def __init__(self, handled: Handled, lines: Iterable[Line], ends: Ends, infrastructure_budget: int) -> None:
        self.count: Counter[EndReason] = Counter()
        self._handled = handled
        self._infrastructure_budget = infrastructure_budget
        self._unrecorded = without_an_end(lines, ends)
        self._began = {(line.job, line.attempt): line.at for line in lines if line.word == "began"}
        self._ended = {
            (record["job"], record["attempt"]): datetime.fromisoformat(record["ended_at"]).timestamp()
            for record in ends.of.values()
        }

    def wrong(self, told: Mapping[str, Versions]) -> Iterator[str]:
        """What is not so."""
        for job, versions in told.items():
            used: Counter[EndReason] = Counter()
            for before, version in zip(versions.all, versions.all[1:], strict=False):
                found = [*self._again(before.record, version, versions, used), *self._failed(before.record, version)]
                found += self._cooldown(before.record, version)
                found += self._left(before.record, version.record, versions, used)
                yield from (f"{job}: version {version.record.seq}: {what}" for what in found)
            self.count += used

    def _again(
        self, before: JobRecord, version: Version, versions: Versions, used: Counter[EndReason]
    ) -> Iterator[str]:
        """Of an attempt that nobody asked for: why the one before it ended, and when it may begin."""
        record = version.record
        if record.attempt == before.attempt or record.current.origin != "automatic":
            return
        attempt, reason = (record.id, before.attempt), record.attempts[-2].end_reason
        if before.state in TERMINAL or version.event != "queued":
            yield f"it was {before.state} and told as {version.event}, and is tried again by itself"
        if versions.asked_of(before.attempt) or versions.suspended_in(before.attempt):
            yield f"somebody wished attempt {before.attempt} to end, and it is tried again by itself"
        right = self._handled.made[record.id].fails(before.attempt) if reason is _OWN else attempt in self._unrecorded
        if reason not in (_OWN, _LOST) or not right:
            yield f"attempt {before.attempt} ended as {reason}, and is tried again by itself"
            return
        seconds = COOLDOWN_SECONDS * 2 ** used[reason]
        used[reason] += 1
        if used[reason] > self._budget(record.id, reason):
            yield f"it is tried again by itself for the {used[reason]}th time after {reason}"
        ended, began = self._ended.get(attempt), self._began.get((record.id, record.attempt))
        if ended is not None and began is not None and began < ended + seconds:
            yield f"it began again {began - ended:.3f} s after its failure, and {seconds} s are to lie between"

    def _cooldown(self, before: JobRecord, version: Version) -> Iterator[str]:
        until = version.record.current.cooldown_until
        gate = version.record.gate
        if gate is not None and gate.name == "cooldown" and (until is None or gate.opens_at != until):
            yield f"its cooldown is over at {until}, and its gate says {gate.opens_at}"
        let_through = before.state is State.QUEUED and version.record.state in ACTIVE
        if let_through and until is not None and version.since < until.timestamp():
            yield f"it was let through {until.timestamp() - version.since:.3f} s before its cooldown was over"

    def _failed(self, before: JobRecord, version: Version) -> Iterator[str]:
        """The event says so in the moment in which the record does, and in no other."""
        entered = version.record.state is State.FAILED and before.state is not State.FAILED
        if entered != (version.event == "failed"):
            yield f"it goes from {before.state} to {version.record.state} and is told as {version.event}"

    def _left(
        self, before: JobRecord, record: JobRecord, versions: Versions, used: Counter[EndReason]
    ) -> Iterator[str]:
        """FAILED though it was to be tried again."""
        reason = record.end_reason
        if record.state is not State.FAILED or before.state is State.FAILED or reason not in (_OWN, _LOST):
            return
        if versions.asked_of(record.attempt) or versions.suspended_in(record.attempt):
            return
        if self._handled.made[record.id].lifetime_seconds is not None or record.started_at is None:
            return  # its lifetime may be over, or it was never seen to run
        if used[reason] < self._budget(record.id, reason):
            yield f"it is FAILED ({reason}) after {used[reason]} of {self._budget(record.id, reason)} automatic retries"

    def _budget(self, job: str, reason: EndReason) -> int:
        return self._handled.made[job].retries if reason is _OWN else self._infrastructure_budget
