"""What became of one input of `advance`."""

from dataclasses import dataclass
from typing import Final, Literal

from shared.lifecycle.record import JobRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input: applied, ignored as stale, or refused, with the reason."""

    what: Literal["applied", "ignored", "refused"]
    why: str | None = None


APPLIED: Final = Outcome("applied")
StepResult = tuple[JobRecord, Outcome]


def applied(record: JobRecord) -> StepResult:
    return record, APPLIED


def ignored(record: JobRecord, why: str) -> StepResult:
    return record, Outcome("ignored", why)


def refused(record: JobRecord, why: str) -> StepResult:
    return record, Outcome("refused", why)
