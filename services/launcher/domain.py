"""What a job record asks of the launcher, decided from the record and the launcher's own rows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from signal import Signals as Numbers
from typing import Final

from shared.backends.clusters import LOCAL
from shared.backends.local.names import submission_name
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.picture import picture
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, Desired
from shared.lifecycle.states import State as JobState
from shared.lifecycle.usage import remaining_seconds

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

    `grace_seconds` is set once an end is asked for; 0 kills at once. `pausing`: that end is a pause. `stop_asked_*` is
    what the backend was asked for, None where it was not asked for what is wanted now. `witnessed`: how it ended is in
    the job's record, so that its records at the backend may go. `ref` is the backend's own name for it.
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
    cluster: str = LOCAL
    ref: str | None = None
    resumed: bool = False
    workstation: bool = False
    owner: str | None = None
    token: str | None = None
    deadline: datetime | None = None
    asked: bool = False
    tries: int = 0
    waits_for: str | None = None
    grace_seconds: float | None = None
    stop_signal: int | None = None
    pausing: bool = False
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
class Graces:
    """What the deployment gives a command between the signal and SIGKILL, where its job says nothing about it."""

    stop_seconds: float
    checkpoint_seconds: float


@dataclass(frozen=True, slots=True)
class Ending:
    """The attempt is to end: by `signal`, within `grace_seconds`."""

    grace_seconds: float
    signal: int = Numbers.SIGTERM
    pausing: bool = False


AT_ONCE: Final = Ending(0)


def decide(
    record: JobRecord, rows: Mapping[int, Launch], *, deployment: str, graces: Graces, now: datetime
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
    ending = _ending(record, over, graces)
    owed = duties(record) & {Duty.LAUNCH, Duty.STOP, Duty.SEAL_LAUNCH}
    if row is None:
        wanted = ending is not None if over else owed
        begun = (_begin(record, ending, deployment, now),) if wanted else ()
        return Decision(begun=begun, changed=_real(changed, rows))
    again = (row,) if record.epoch > row.epoch else ()
    after = replace(row, epoch=record.epoch, seq=record.seq, witnessed=row.witnessed or _is_witnessed(record, over))
    if ending is not None:
        after = end(after, ending, now)
    elif row.state is State.INTENT:
        after = replace(after, directory=_directory(record) or row.directory)
    if not again and not owed and replace(after, seq=row.seq) == row:
        return Decision(changed=_real(changed, rows))  # nothing is owed, so nobody will ask about this version
    return Decision(changed=(after, *_real(changed, rows)), answered=again)


def end(row: Launch, ending: Ending, now: datetime) -> Launch:
    """The row, asked to end. A stop after a pause is asked for anew, with a grace of its own; a pause after a stop
    changes nothing. Of two stops, or two pauses, the shorter grace counts."""
    if row.state is State.SEALED:
        return row
    return replace(
        _wanted(row, ending),
        state=State.REVOKING,
        next_at=now,
        token=None,
        deadline=None,
        tries=0 if row.state is not State.REVOKING else row.tries,
        waits_for=None,
    )


def _wanted(row: Launch, ending: Ending) -> Launch:
    if row.grace_seconds is None or (row.pausing and not ending.pausing):
        return replace(
            row,
            grace_seconds=ending.grace_seconds,
            stop_signal=int(ending.signal),
            pausing=ending.pausing,
            stop_asked_at=None,
            stop_asked_grace=None,
        )
    if ending.pausing and not row.pausing:
        return row
    return replace(row, grace_seconds=min(row.grace_seconds, ending.grace_seconds))


def _is_over(record: JobRecord) -> bool:
    """Whether the record has ended, so that nothing of its attempt may run any more."""
    return record.deleted or record.state not in _UNDECIDED


def _is_witnessed(record: JobRecord, over: bool) -> bool:
    seen = picture(record.current)
    return over or seen.exited is not None or seen.lost is not None


def _ending(record: JobRecord, over: bool, graces: Graces) -> Ending | None:
    """Whether the attempt is to end now, and how gently."""
    if over:
        return AT_ONCE if picture(record.current).launcher_asked else None
    owed = duties(record)
    if Duty.SEAL_LAUNCH in owed:
        return AT_ONCE
    if Duty.STOP not in owed:
        return None
    wish, signals = record.wish, record.signals
    if record.desired_state is Desired.PAUSED:
        grace = _first(signals.checkpoint_grace_seconds, graces.checkpoint_seconds)
        return Ending(grace, Numbers[f"SIG{signals.checkpoint_signal}"], pausing=True)
    if wish is not None and wish.force:
        return AT_ONCE
    asked = None if wish is None else wish.grace_seconds
    return Ending(_first(asked, signals.stop_grace_seconds, graces.stop_seconds))


def _first(*seconds: float | None) -> float:
    """The first that is given; the last always is."""
    return float(next(given for given in seconds if given is not None))


def _overtaken(row: Launch, now: datetime) -> Launch:
    """A newer attempt ends everything older."""
    return replace(end(row, AT_ONCE, now), witnessed=True)


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
        cluster=record.backend.cluster or LOCAL,
        submission=submission_name(deployment, record.id, record.attempt, ONLY),
        directory=_directory(record),
        spec_digest=record.spec_digest,
        gpus=record.resources.gpus,
        time_limit_seconds=remaining_seconds(record),
        next_at=now,
        resumed=record.current.origin == "resume",
        workstation=record.kind == "workstation",
        witnessed=_is_witnessed(record, _is_over(record)),
    )
    return row if ending is None else end(row, ending, now)
