"""The job event on the wire: CloudEvents 1.0 in binary mode (attributes as headers, JSON body under 4 KB).

Source of the headers' names: the CloudEvents NATS protocol binding 1.0 (`ce-` and the attribute's name).
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import orjson

from shared.contracts.subjects import job_subject
from shared.lifecycle.facts import Frozen
from shared.lifecycle.folding import fold_segments
from shared.lifecycle.record import JobRecord, Segment

SOURCE: Final = "/tidegate/api"
TYPE_PREFIX: Final = "dev.tidegate.job.v1."
MAX_BODY_BYTES: Final = 4096
_IMPLIED: Final = ("job", "tenant", "attempt", "source")
_OUTCOME: Final = ("end_reason", "exit", "message", "finished_at", "stages")
_SHORTENED: Final = ((160, 6), (80, 3), (40, 1))
"""Longest text and longest list, tried in turn where a body is too long."""
_TEXTS: Final = frozenset(
    {
        "reason",
        "message",
        "hint",
        "waiting_on",
        "raw_state",
        "raw_reason",
        "scope",
        "lifted_by",
        "place",
        "near",
        "began_after",
    }
)
_LISTS: Final = frozenset({"findings", "closed_gates", "missing", "warnings", "submit_warnings"})


class Corrected(Frozen):
    """A segment that this change closed or corrected and that `job.attempts` does not show."""

    attempt: int
    segment: Segment


class JobEvent(Frozen):
    """A record after a change. `job.attempts` holds the current attempt only, with its newest segment and the evidence
    about that; `corrected` are the other segments that changed. `earlier_attempts` and `earlier_segments` count what is
    left out (read the record for them). Environment values and view fields are never in it; the spec is there by
    `spec_digest`. `shortened`: texts and lists were cut to keep the body small.

    The JSON body leaves out what it says elsewhere: in evidence `job`, `tenant`, `attempt`, `source` and a `segment`
    that is the attempt's newest; in a sealed attempt what the job says in the same words; empty lists.
    """

    version: Literal[1] = 1
    type: str
    job: JobRecord
    earlier_attempts: int = 0
    earlier_segments: int = 0
    corrected: tuple[Corrected, ...] = ()
    shortened: bool = False

    def segments(self) -> Iterator[tuple[int, Segment]]:
        """Every segment in the event with its attempt's number: all that changed, and maybe more."""
        for one in self.corrected:
            yield one.attempt, one.segment
        for segment in self.job.current.segments:
            yield self.job.attempt, segment


class WireEvent(NamedTuple):
    """A job event ready to be published: its id is job/epoch/seq."""

    subject: str
    msg_id: str
    headers: Mapping[str, str]
    body: bytes


def encode_event(
    record: JobRecord,
    event: str,
    at: datetime,
    *,
    before: JobRecord | None = None,
    dumped: dict[str, Any] | None = None,
) -> WireEvent:
    """The message for `event` of `record`, which changed at `at`. `before` is the record that it was: with it the event
    carries every segment that changed, also those of earlier attempts. `dumped` is what `dump` gives of the record,
    where the caller has it already; nothing but the message is left of it."""
    attempt = record.current
    trimmed = fold_segments(attempt, kept=1, most=1)
    job = dump(record) if dumped is None else dumped
    job.pop("earlier", None)
    job["attempts"] = [job["attempts"][-1] if trimmed is attempt else dump(trimmed)]
    head = JobEvent(
        type=event,
        job=record,
        earlier_attempts=record.attempt - 1,
        earlier_segments=0 if trimmed.folded is None else trimmed.folded.segments,
        corrected=tuple(_corrected(before, record)),
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
    data = dump(head, without={"job"}) | {"job": job}
    return WireEvent(job_subject(record.tenant, event), msg_id, headers, _body(data))


def dump(model: Frozen, *, without: set[str] | None = None) -> dict[str, Any]:
    """A model as JSON's objects: what is not set is left out."""
    return model.model_dump(mode="json", exclude=without, exclude_none=True)


def decode_event(body: bytes) -> JobEvent:
    """Read a job event; raises pydantic's ValidationError where it is none."""
    try:
        data = orjson.loads(body)
        _restore(data["job"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return JobEvent.model_validate_json(body)  # not of the event's form: the model says what is wrong with it
    return JobEvent.model_validate(data)


def _corrected(before: JobRecord | None, after: JobRecord) -> Iterator[Corrected]:
    """The segments that changed, but for the newest one. Not knowing what was before: those of the current attempt."""
    known = {} if before is None else {attempt.number: attempt.segments for attempt in before.attempts}
    for attempt in after.attempts if before is not None else (after.current,):
        was = known.get(attempt.number, ())
        shown = attempt.segments[:-1] if attempt.number == after.attempt else attempt.segments
        for segment in shown if was is not attempt.segments else ():
            if segment not in was:
                yield Corrected(attempt=attempt.number, segment=segment)


def _body(data: dict[str, Any]) -> bytes:
    job = data["job"]
    attempt = job["attempts"][0]
    newest = attempt["segments"][-1]["key"] if attempt["segments"] else None
    for fact in attempt["evidence"]:
        for name in _IMPLIED:
            del fact[name]
        if newest is not None and fact.get("segment") == newest:
            del fact["segment"]
        _without_empty_lists(fact)
    if attempt["sealed"]:
        for name in _OUTCOME:
            if attempt.get(name) == job.get(name):
                attempt.pop(name, None)
    _without_empty_lists(attempt)
    _without_empty_lists(job)
    body = orjson.dumps(data)
    for longest, most in _SHORTENED:
        if len(body) <= MAX_BODY_BYTES:
            break
        data["shortened"] = True
        body = orjson.dumps(_shortened(data, longest, most))
    return body


def _restore(job: dict[str, Any]) -> None:
    """Put back what `_body` left out."""
    attempt = job["attempts"][-1]
    implied = {"job": job["id"], "tenant": job["tenant"], "attempt": job["attempt"], "source": "event"}
    segments = attempt.get("segments")
    if segments:
        implied["segment"] = segments[-1]["key"]
    attempt["evidence"] = [implied | fact for fact in attempt.get("evidence", ())]
    if attempt.get("sealed"):
        for name in _OUTCOME:
            if name in job:
                attempt.setdefault(name, job[name])


def _without_empty_lists(data: dict[str, Any]) -> None:
    for name in [name for name, value in data.items() if value == []]:
        del data[name]


def _shortened(data: Any, longest: int, most: int) -> Any:
    """`data` with sentences of at most `longest` characters and lists of at most `most` things."""
    if isinstance(data, list):
        return [_shortened(item, longest, most) for item in data]
    if not isinstance(data, dict):
        return data
    short = {}
    for name, value in data.items():
        if name in _TEXTS and isinstance(value, str) and len(value) > longest:
            short[name] = value[: longest - 1] + "…"
        elif name in _LISTS and isinstance(value, list):
            cut = [item[:longest] if isinstance(item, str) else item for item in value[:most]]
            short[name] = _shortened(cut, longest, most)
        else:
            short[name] = _shortened(value, longest, most)
    return short


def newest_by_job(records: Iterable[JobRecord]) -> dict[str, JobRecord]:
    """Of several records of one job the newest: what came before it is in it."""
    newest: dict[str, JobRecord] = {}
    for record in records:
        known = newest.get(record.id)
        if known is None or (known.epoch, known.seq) < (record.epoch, record.seq):
            newest[record.id] = record
    return newest
