"""The job event on the wire: CloudEvents 1.0 in binary mode (attributes as headers, JSON body under 4 KB).

Source of the headers' names: the CloudEvents NATS protocol binding 1.0 (`ce-` and the attribute's name).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple

from shared.contracts.subjects import job_subject
from shared.lifecycle.facts import Frozen
from shared.lifecycle.picture import picture, segment_of
from shared.lifecycle.record import Attempt, JobRecord

SOURCE: Final = "/tidegate/api"
TYPE_PREFIX: Final = "dev.tidegate.job.v1."


class JobEvent(Frozen):
    """A record after a change. `job.attempts` holds the current attempt only, with its latest segment's evidence;
    `earlier_attempts` and `earlier_segments` count what is left out (read the record for them). Environment values and
    view fields are never in it; the spec is there by `spec_digest`."""

    version: Literal[1] = 1
    type: str
    job: JobRecord
    earlier_attempts: int = 0
    earlier_segments: int = 0


class WireEvent(NamedTuple):
    """A job event ready to be published: its id is job/epoch/seq."""

    subject: str
    msg_id: str
    headers: Mapping[str, str]
    body: bytes


def encode_event(record: JobRecord, event: str, at: datetime) -> WireEvent:
    """The message for `event` of `record`, which changed at `at`."""
    attempt, left_out = _trimmed(record.current)
    body = JobEvent(
        type=event,
        job=record.model_copy(update={"attempts": (attempt,)}),
        earlier_attempts=len(record.attempts) - 1,
        earlier_segments=left_out,
    )
    msg_id = f"{record.id}/{record.epoch}/{record.seq}"
    headers = {
        "ce-specversion": "1.0",
        "ce-id": msg_id,
        "ce-source": SOURCE,
        "ce-type": TYPE_PREFIX + event,
        "ce-subject": record.id,
        "ce-time": at.isoformat(),
        "content-type": "application/json",
    }
    return WireEvent(
        job_subject(record.tenant, event), msg_id, headers, body.model_dump_json(exclude_none=True).encode()
    )


def decode_event(body: bytes) -> JobEvent:
    """Read a job event; raises pydantic's ValidationError where it is none."""
    return JobEvent.model_validate_json(body)


def _trimmed(attempt: Attempt) -> tuple[Attempt, int]:
    latest = picture(attempt).latest
    if latest is None or len(attempt.segments) <= 1:
        return attempt, 0
    kept = tuple(fact for fact in attempt.evidence if (key := segment_of(fact)) is None or key == latest)
    shown = attempt.segments[-2:]
    return attempt.model_copy(update={"evidence": kept, "segments": shown}), len(attempt.segments) - len(shown)
