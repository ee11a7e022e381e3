"""What is to be told of each submission: rows and the runner's records put together, look by look.

The records are read only of who has ended, or of whom there are two; and once an end is whole, not again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.metrics import Meter

from services.watcher.domain import Finding
from services.watcher.slurm.blindness import Blind
from services.watcher.slurm.findings import findings, given_up, is_stuck, self_reported
from services.watcher.slurm.joining import Rows, sighting, tenant_in, witnesses
from services.watcher.slurm.sighting import Sighting, is_over, of_claim
from services.watcher.store import Expected
from shared.backends.local import layout
from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm import records
from shared.lifecycle.reasons import EndReason
from shared.runtime.logs import Log

_ACCOUNTING_LAGS: Final = timedelta(seconds=30)
"""So long an end waits for who cancelled the job, and for what was before a requeue: only accounting knows. One that is
not owed was told by an earlier observer with all that there is, and waits until no less can be told."""
_FILES_LAG: Final = timedelta(seconds=60)
"""So long a shared file system may show no record yet, or none at all, before an end is told without it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One submission, with what is to be told of it."""

    submission: str
    job: str
    attempt: int
    alive: bool
    told: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What one look made of a submission. `wants`: accounting can say more; `final`: of the same rows nothing can."""

    rows: Rows
    seen: Seen
    wants: bool = False
    final: bool = False


class Attempts:
    """All of one cluster's, as the last look showed them."""

    def __init__(self, root: str, log: Log, meter: Meter, *, stuck_seconds: float, accounting: bool) -> None:
        self._root = root
        self._log = log
        self._stuck_for = timedelta(seconds=stuck_seconds)
        self._accounting = accounting
        self._unknown = meter.create_counter("tidegate_unknown_words", description="Words that the mapping lacks")
        self._complained: set[str] = set()
        self._known: dict[str, Known] = {}
        self._over_since: dict[str, datetime] = {}
        self._stuck_since: dict[str, datetime] = {}

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Of everybody; of who is unchanged the same object as before."""
        return tuple(known.seen for known in self._known.values())

    @property
    def wanting(self) -> frozenset[str]:
        """Of whom accounting can say more than the queue."""
        return frozenset(name for name, known in self._known.items() if known.wants)

    def read(
        self,
        names: Mapping[str, Rows],
        owed: Mapping[str, Expected],
        blind: Sequence[Blind],
        at: datetime,
        *,
        unread: Sequence[str] = (),
        orphans_too: bool = False,
    ) -> None:
        """Of all that are shown; of who is not owed only in the queue, unless `orphans_too`. `unread` are lines that
        could not be read: whose name is in one is not absent."""
        known: dict[str, Known] = {}
        for name, rows in names.items():
            one = owed.get(name)
            tenant = one.tenant if one is not None else tenant_in(rows)
            if tenant is not None and (one is not None or rows.queue or orphans_too):
                now = self._of(name, rows, tenant, blind, at, owed=one is not None)
                if now is not None:
                    known[name] = now
        for name in owed.keys() - known.keys():
            if any(name in line for line in unread):
                known[name] = self._as_before(name, Rows())
        self._known = known
        for since in (self._over_since, self._stuck_since):
            for name in since.keys() - known.keys():
                del since[name]

    def alone(self, name: str, one: Expected) -> Seen | None:
        """By the runner's records alone, where its last run has one. Raises CouldNotAsk."""
        try:
            known = self._records(name, one.tenant)
        except OSError as error:
            raise CouldNotAsk(f"the runner's records of {name} could not be read: {error}") from error
        if known.holder is None:
            return None
        newest = max([*known.started, *(claim.run.restart for claim in known.claims)])
        last = next((end for end in witnesses(known) if end.restart == newest), None)
        if last is None:
            return None
        id, since = known.holder.slurm_job_id, one.accepted_at
        end = self_reported(of_claim(name, one.job, one.attempt, one.tenant, id, since, last), last)
        return None if end is None else Seen(name, one.job, one.attempt, False, (end,))

    def _of(
        self, name: str, rows: Rows, tenant: str, blind: Sequence[Blind], at: datetime, *, owed: bool
    ) -> Known | None:
        before = self._known.get(name)
        if before is not None and before.final and before.rows == rows:
            return before
        shown = sighting(name, rows, tenant, records.Records())
        if rows.doubled or (shown is not None and is_over(shown.last)):
            over_for = at - self._over_since.setdefault(name, at)
            try:
                known = self._records(name, tenant)
            except OSError as error:
                self._complain(f"the runner's records of {name} could not be read", str(error))
                if over_for < _FILES_LAG:
                    return self._as_before(name, rows)
                known = records.Records()
            shown = sighting(name, rows, tenant, known)
            if shown is not None and is_over(shown.last):
                lags = self._accounting and (not owed or over_for < _ACCOUNTING_LAGS)
                if lags and _says_less_than_accounting(shown, known):
                    return replace(self._as_before(name, rows), wants=True)
                self._stuck_since.pop(name, None)
                final = shown.witness(shown.last.restart) is not None or over_for >= _FILES_LAG
                return Known(rows, self._unchanged(shown, findings(shown, blind)), final=final)
        self._over_since.pop(name, None)
        if shown is None or not shown.alive:
            # What the queue shows as living is not absent, whatever else is not known of it.
            return self._as_before(name, rows) if rows.alive else None
        self._note_words(shown)
        wants = self._accounting and any(segment.end_is_requeue for segment in shown.segments)
        return Known(rows, self._unchanged(shown, self._stuck(shown, at) or findings(shown, blind)), wants)

    def _stuck(self, shown: Sighting, at: datetime) -> tuple[Finding, ...]:
        """Its end, where it has waited for too long for what will never come."""
        if not is_stuck(shown):
            self._stuck_since.pop(shown.name, None)
            return ()
        until = self._stuck_since.setdefault(shown.name, at) + self._stuck_for
        return given_up(shown, until) if at >= until else ()

    def _unchanged(self, shown: Sighting, told: tuple[Finding, ...]) -> Seen:
        now = Seen(shown.name, shown.job, shown.attempt, shown.alive, told)
        before = self._known.get(shown.name)
        return before.seen if before is not None and before.seen == now else now

    def _as_before(self, name: str, rows: Rows) -> Known:
        """There, and nothing new to tell."""
        before = self._known.get(name)
        if before is not None:
            return Known(rows, before.seen if before.seen.alive else replace(before.seen, alive=True))
        job, attempt = _parts(name)
        return Known(rows, Seen(name, job, attempt, True))

    def _records(self, name: str, tenant: str) -> records.Records:
        try:
            directory = layout.attempt_directory(self._root, tenant, *_parts(name))
        except ValueError:
            return records.Records()  # a stranger's comment names no tenant of ours
        return records.read(directory)

    def _note_words(self, shown: Sighting) -> None:
        word = shown.last.word
        if shown.last.state is None and word:
            if word not in self._complained:
                self._unknown.add(1, {"word": word[:40]})
            self._complain("a word of Slurm is unknown: the job keeps its state", word)

    def _complain(self, what: str, why: str) -> None:
        if why not in self._complained:
            self._complained.add(why)
            self._log.warning(what, why=why)


def _says_less_than_accounting(shown: Sighting, known: records.Records) -> bool:
    """Whether it was cancelled by nobody knows whom, or was something before a requeue that nobody knows."""
    last = shown.last
    if any(segment.end_is_requeue for segment in shown.segments):
        return True
    if last.state is None or last.state.reason is not EndReason.STOPPED_AT_BACKEND or last.cancelled_by is not None:
        return False
    return last.controller and not known.stop_requested


def _parts(name: str) -> tuple[str, int]:
    parsed = parse_submission_name(name)
    assert parsed is not None, "only names of submissions are read"
    return parsed[1], parsed[2]
