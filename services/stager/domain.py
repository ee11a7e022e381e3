"""What the stager does about a job record, given its own row. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, State
from shared.lifecycle.verdict import exit_reason

_ABOUT: Final = timedelta(hours=1)  # a backup takes a while, and somebody has written down when it was made
Outcome = Literal["none", "verified", "missing", "failed"]


class Stage(StrEnum):
    """Where the staging of an attempt is. Exactly one holds, so that no two facts can contradict each other."""

    STAGE_IN = "stage_in"
    """Owed or under way: nothing has been said. A worker holds the lease, or one will take it."""
    STAGED = "staged"
    """Published: the directory is named, `staged` was said, a vote is still to come."""
    COPY_BACK = "copy_back"
    """The command is over: outputs are being copied, or will be."""
    SEALED = "sealed"
    """The vote was given: nothing more is written for this attempt."""
    OVER = "over"
    """Nobody asks any more (a newer attempt, an ended or deleted job): nothing more is written or said."""


OPEN = frozenset({Stage.STAGE_IN, Stage.STAGED, Stage.COPY_BACK})


@dataclass(frozen=True, slots=True)
class Known:
    """What a row says that decisions need. `(epoch, seq)` is the newest record seen."""

    attempt: int
    stage: Stage
    epoch: int
    seq: int
    directory: str | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Stale, or nothing to do."""


@dataclass(frozen=True, slots=True)
class Note:
    """Work goes on as it is; remember the record's version."""


@dataclass(frozen=True, slots=True)
class StageIn:
    """Begin: validate, stage in."""


@dataclass(frozen=True, slots=True)
class CopyBack:
    """Copy the outputs back. `succeeded`: the command ended well, so that a pattern without a match is an error."""

    directory: str
    succeeded: bool


@dataclass(frozen=True, slots=True)
class ReturnToStaged:
    """The backend runs the attempt again: what was copied does not count."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Vote without copying. `staged` is the truth about this attempt's inputs."""

    staged: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Only after a restore: the record knows what was told in the lost time, and this row does not. It counts."""

    stage: Stage
    directory: str | None
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """It was said before and is asked for again: say it again."""


@dataclass(frozen=True, slots=True)
class Close:
    """Nobody asks for this attempt any more; `deleted`: nor for what it left behind."""

    deleted: bool


Move = Drop | Note | StageIn | CopyBack | ReturnToStaged | Seal | Adopt | Answer | Close


def concerns(record: JobRecord, backup_at: datetime | None = None) -> bool:
    """Whether a record can change anything here: most events cannot, and cost nothing. `backup_at`: the rows of jobs
    that are about as old as that were taken back in time once, so that any record may know more than they do."""
    if backup_at is not None and record.submitted_at <= backup_at + _ABOUT:
        return True
    if record.deleted or (record.state not in ACTIVE and record.state is not State.QUEUED):
        return True
    return bool(_owed(record)) or picture(record.current).requeued is not None


def decide(record: JobRecord, rows: Mapping[int, Known]) -> Move:
    """What to do about `record`, given this job's rows by attempt."""
    if any(attempt > record.attempt and row.epoch >= record.epoch for attempt, row in rows.items()):
        return Drop()  # but for an attempt of the lost time, which a restored record does not know
    if any(row.deleted and row.epoch >= record.epoch for row in rows.values()):
        return Drop()  # news of before, which came late: nothing is made for it any more
    known = rows.get(record.attempt)
    if known is not None and (record.epoch, record.seq) < (known.epoch, known.seq):
        return Drop()
    if record.deleted:
        return Close(deleted=True) if rows else Drop()
    if (adopted := _adopted(record, known)) is not None:
        return adopted
    if record.current.sealed:
        return Close(deleted=False) if known is not None and known.stage in OPEN else Drop()
    owed = _owed(record)
    if known is None:
        return _first(record, owed)
    match known.stage:
        case Stage.STAGE_IN:
            return _staging(record, owed)
        case Stage.STAGED:
            return _staged(record, known, owed)
        case Stage.COPY_BACK:
            return _copying(record, owed)
        case Stage.SEALED:
            return _told(record, known, owed)
        case Stage.OVER:
            return Drop()


def _adopted(record: JobRecord, known: Known | None) -> Adopt | None:
    """What the record knows of our own facts is never ahead of our row, but where that was taken back in time."""
    seen = picture(record.current)
    directory = None if seen.staged is None else seen.staged.directory
    if known is not None and known.stage not in OPEN:
        # The vote of the lost time may have come to the record before what had been staged.
        voted = seen.staging_sealed is not None and seen.staging_sealed.staged
        late = known.stage is Stage.SEALED and known.directory is None and directory is not None and voted
        return Adopt(Stage.SEALED, directory, None) if late else None
    if seen.staging_sealed is not None and (known is not None or seen.staging_sealed.manifest is not None):
        return Adopt(Stage.SEALED, directory, seen.staging_sealed.manifest)
    if known is None or known.stage is not Stage.STAGE_IN or seen.staged is None or _owed(record):
        return None
    return Adopt(Stage.SEALED if seen.staged.nothing_to_copy else Stage.STAGED, directory, None)


def _owed(record: JobRecord) -> frozenset[Duty]:
    return duties(record) & {Duty.STAGE_IN, Duty.COPY_BACK, Duty.SEAL_STAGING}


def _first(record: JobRecord, owed: frozenset[Duty]) -> Move:
    """No row yet; where the record knows more than we do, our slice was lost, and the record is believed."""
    if Duty.STAGE_IN in owed:
        return StageIn()
    if Duty.COPY_BACK in owed:
        return _copy(record)
    return Seal(staged=_was_staged(record)) if Duty.SEAL_STAGING in owed else Drop()


def _staging(record: JobRecord, owed: frozenset[Duty]) -> Move:
    if Duty.SEAL_STAGING in owed:
        return Seal(staged=_was_staged(record))
    return _copy(record) if Duty.COPY_BACK in owed else Note()


def _told(record: JobRecord, known: Known, owed: frozenset[Duty]) -> Move:
    """What is owed was said already: it is on its way, unless the same record (or one of a restored database) asks."""
    if not owed:
        return Drop()
    asks = (record.epoch, record.seq) == (known.epoch, known.seq) or record.epoch > known.epoch
    return Answer() if asks else Note()


def _staged(record: JobRecord, known: Known, owed: frozenset[Duty]) -> Move:
    if Duty.COPY_BACK in owed:
        return _copy(record)
    if Duty.SEAL_STAGING in owed and _was_staged(record):
        return Seal(staged=True)
    # The record does not know yet that it is staged: `staged=False` can never be said any more.
    return _told(record, known, owed)


def _copying(record: JobRecord, owed: frozenset[Duty]) -> Move:
    if Duty.COPY_BACK in owed:
        return Note()
    if Duty.SEAL_STAGING in owed:
        return Seal(staged=True)
    return ReturnToStaged() if picture(record.current).requeued is not None else Note()


def _copy(record: JobRecord) -> Move:
    seen = picture(record.current)
    assert seen.staged is not None, "outputs are owed of a staged attempt only"
    ended = seen.exited is not None and exit_reason(seen.exited) is EndReason.SUCCEEDED
    return CopyBack(seen.staged.directory, ended)


def _was_staged(record: JobRecord) -> bool:
    return picture(record.current).staged is not None
