"""What a job record asks of the launcher, decided from the record and the launcher's own rows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from shared.backends.local.names import submission_name
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.picture import picture
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, Desired
from shared.lifecycle.states import State as JobState

ONLY: Final = "s1"
"""Ends every submission's name. It never varies: whoever asks again asks for the very same submission."""


_UNDECIDED: Final = ACTIVE | {JobState.QUEUED}


class State(StrEnum):
    """Where a launch is. Only forward, but for `submitting` back to `intent` where the backend has nothing."""

    INTENT = "intent"
    """To be handed to the backend."""
    SUBMITTING = "submitting"
    """Somebody (`owner`, `token`) asks the backend until `deadline`; the answer is not known."""
    SUBMITTED = "submitted"
    """The backend took it, and `accepted` was told."""
    REVOKING = "revoking"
    """It is to end: nothing may start from now on, what runs is asked to stop, then it is sealed."""
    SEALED = "sealed"
    """Nothing of the attempt runs or can start: `launcher_sealed` and `gpus_freed` were told."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One row of `launches`. `(epoch, seq)` is the newest record that asked something of it.

    `grace_seconds` is set once an end is asked for; 0 kills at once. `witnessed`: how it ended is in the job's record,
    so that its records at the backend may go.
    """

    job: str
    attempt: int
    tenant: str
    epoch: int
    seq: int
    state: State
    submission: str
    directory: str | None
    spec_digest: str
    gpus: int
    time_limit_seconds: int | None
    next_at: datetime
    owner: str | None = None
    token: str | None = None
    deadline: datetime | None = None
    asked: bool = False
    tries: int = 0
    waits_for: str | None = None
    grace_seconds: float | None = None
    stop_asked_at: datetime | None = None
    stop_asked_grace: float | None = None
    accepted_n: int | None = None
    accepted_at: datetime | None = None
    begun_at: datetime | None = None
    refused_reason: str | None = None
    refused_message: str | None = None
    sealed_n: int | None = None
    sealed_at: datetime | None = None
    ran: bool | None = None
    witnessed: bool = False
    released: bool = False
    answers: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """One row per job and attempt."""
        return (self.job, self.attempt)

    @property
    def seen(self) -> tuple[int, int]:
        """The newest record seen."""
        return (self.epoch, self.seq)


@dataclass(frozen=True, slots=True)
class Decision:
    """Rows to insert, rows to write, and rows whose latest facts are to be told again."""

    begun: tuple[Launch, ...] = ()
    changed: tuple[Launch, ...] = ()
    answered: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """The attempt is to end, within `grace_seconds`."""

    grace_seconds: float


def decide(
    record: JobRecord, rows: Mapping[int, Launch], *, deployment: str, default_grace: float, now: datetime
) -> Decision:
    """What `record` means for the job's rows (by attempt). Lower is dropped, equal is a question, newer is acted on."""
    newest = max((row.seen for row in rows.values()), default=None)
    at = (record.epoch, record.seq)
    if newest is not None and at < newest:
        return Decision()
    row = rows.get(record.attempt)
    if row is not None and row.seen == at:
        return Decision(answered=(row,))
    changed = [_overtaken(old, now) for number, old in rows.items() if number < record.attempt]
    over = _is_over(record)
    ending = _ending(record, over, default_grace)
    owed = duties(record) & {Duty.LAUNCH, Duty.STOP, Duty.SEAL_LAUNCH}
    if row is None:
        wanted = ending is not None if over else owed
        begun = (_begin(record, ending, deployment, now),) if wanted else ()
        return Decision(begun=begun, changed=_real(changed, rows))
    again = (row,) if record.epoch > row.epoch else ()
    after = replace(row, epoch=record.epoch, seq=record.seq, witnessed=row.witnessed or _is_witnessed(record, over))
    if ending is not None:
        after = end(after, ending.grace_seconds, now)
    elif row.state is State.INTENT:
        after = replace(after, directory=_directory(record) or row.directory)
    if not again and not owed and replace(after, seq=row.seq) == row:
        return Decision(changed=_real(changed, rows))  # nothing is owed, so nobody will ask about this version
    return Decision(changed=(after, *_real(changed, rows)), answered=again)


def end(row: Launch, grace_seconds: float, now: datetime) -> Launch:
    """The row, asked to end: a shorter grace counts, a longer one does not take back an earlier."""
    if row.state is State.SEALED:
        return row
    grace = grace_seconds if row.grace_seconds is None else min(row.grace_seconds, grace_seconds)
    return replace(
        row,
        state=State.REVOKING,
        grace_seconds=grace,
        next_at=now,
        token=None,
        deadline=None,
        tries=0 if row.state is not State.REVOKING else row.tries,
        waits_for=None,
    )


def _is_over(record: JobRecord) -> bool:
    """Whether the record has ended, so that nothing of its attempt may run any more."""
    return record.deleted or record.state not in _UNDECIDED


def _is_witnessed(record: JobRecord, over: bool) -> bool:
    seen = picture(record.current)
    return over or seen.exited is not None or seen.lost is not None


def _ending(record: JobRecord, over: bool, default_grace: float) -> Ending | None:
    """Whether the attempt is to end now, and how gently."""
    if over:
        return Ending(0) if picture(record.current).launcher_asked else None
    owed = duties(record)
    if Duty.SEAL_LAUNCH in owed:
        return Ending(0)
    if Duty.STOP not in owed:
        return None
    wish = record.wish
    if wish is None or record.desired_state is Desired.RUN:
        return Ending(default_grace)
    if wish.force:
        return Ending(0)
    return Ending(default_grace if wish.grace_seconds is None else float(wish.grace_seconds))


def _overtaken(row: Launch, now: datetime) -> Launch:
    """A newer attempt ends everything older."""
    return replace(end(row, 0, now), witnessed=True)


def _real(changed: list[Launch], rows: Mapping[int, Launch]) -> tuple[Launch, ...]:
    return tuple(row for row in changed if row != rows[row.attempt])


def _directory(record: JobRecord) -> str | None:
    """Where the inputs lie, relative to the cluster's root."""
    staged = picture(record.current).staged
    return None if staged is None else staged.directory


def _begin(record: JobRecord, ending: Ending | None, deployment: str, now: datetime) -> Launch:
    row = Launch(
        job=record.id,
        attempt=record.attempt,
        tenant=record.tenant,
        epoch=record.epoch,
        seq=record.seq,
        state=State.INTENT,
        submission=submission_name(deployment, record.id, record.attempt, ONLY),
        directory=_directory(record),
        spec_digest=record.spec_digest,
        gpus=record.resources.gpus,
        time_limit_seconds=record.resources.time_limit_seconds,
        next_at=now,
        witnessed=_is_witnessed(record, _is_over(record)),
    )
    return row if ending is None else end(row, ending.grace_seconds, now)
