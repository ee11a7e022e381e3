"""What `api` decides: the next version of a record from facts or a command, and its replay from the log. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from shared.contracts.facts import NotYours, decode_fact
from shared.contracts.ids import is_id
from shared.lifecycle.advance import advance, reset
from shared.lifecycle.facts import AnyFact
from shared.lifecycle.inputs import INPUT, AnyCommand, AnyInput, Reset
from shared.lifecycle.outcome import Outcome
from shared.lifecycle.picture import segment_of
from shared.lifecycle.record import JobRecord

# An escaped NUL, not an escaped backslash that `u0000` follows. PostgreSQL's jsonb cannot hold one.
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


class BadFact(ValueError):
    """A message on FACTS that no redelivery makes right; the text says why."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A fact as it came: who sent it, what it says, and its JSON for the log (fields unknown here are kept)."""

    service: str
    fact: AnyFact
    json: str

    @property
    def key(self) -> str:
        """Facts of one key replace each other, the newest wins."""
        fact = self.fact
        segment = segment_of(fact)
        where = "" if segment is None else f"{segment.submission}.{segment.restart}"
        return f"{self.service}/{fact.attempt}/{fact.kind}/{where}"


@dataclass(frozen=True, slots=True)
class Change:
    """The next version of a record, the event that tells of it, and the inputs that caused it as a JSON list; `before`
    is the version that it follows."""

    record: JobRecord
    event: str
    at: datetime
    inputs: str
    before: JobRecord | None = None


def read_fact(subject: str, body: bytes) -> Reported:
    """The fact in a message; raises `BadFact`."""
    if b"\\u0000" in body:
        body = _NUL.sub(rb"\1\\ufffd", body)
    try:
        fact = decode_fact(subject, body)
    except (NotYours, ValidationError) as error:
        raise BadFact(f"no fact that may come on {subject}: {error}") from error
    if not is_id(fact.job):
        raise BadFact(f"{fact.job[:80]!r} is no job's id")
    return Reported(subject.split(".")[-2], fact, body.decode())


def by_job(reported: Iterable[Reported]) -> dict[str, list[Reported]]:
    """The facts of each job, in the order in which they came."""
    grouped: dict[str, list[Reported]] = {}
    for one in reported:
        grouped.setdefault(one.fact.job, []).append(one)
    return grouped


def take_facts(
    record: JobRecord, reported: Sequence[Reported], now: datetime
) -> tuple[Change | None, Sequence[Outcome]]:
    """All facts of a job at once: one change, none where nothing is new. Raises `BadFact` for another tenant's."""
    for one in reported:
        if one.fact.tenant != record.tenant:
            raise BadFact(f"a fact of {one.service} names tenant {one.fact.tenant!r}; {record.id} is not theirs")
    done = advance(record, [one.fact for one in reported], now)
    if done.event is None:
        return None, done.outcomes
    logged = [one.json for one, outcome in zip(reported, done.outcomes, strict=True) if outcome.what != "ignored"]
    return Change(done.record, done.event, now, f"[{','.join(logged)}]", record), done.outcomes


def take_command(record: JobRecord, command: AnyCommand, now: datetime) -> tuple[Change | None, Outcome]:
    """A person's wish: final in the moment in which it is answered."""
    done = advance(record, [command], now)
    if done.event is None:
        return None, done.outcomes[0]
    logged = f"[{command.model_dump_json(exclude_none=True)}]"
    return Change(done.record, done.event, now, logged, record), done.outcomes[0]


def reset_of(record: JobRecord, item: Reset, now: datetime) -> Change:
    """The record as a new version, told again to everybody."""
    done = reset(record, item)
    assert done.event is not None, "a reset is always told"
    return Change(done.record, done.event, now, f"[{item.model_dump_json(exclude_none=True)}]", record)


def replay(first: JobRecord, log: Iterable[tuple[Sequence[Mapping[str, object]], datetime, int]]) -> JobRecord:
    """The record that the logged inputs, each with its event's time and epoch, make of the first version: the current
    one."""
    record = first
    for inputs, at, epoch in log:
        if inputs and inputs[0]["kind"] == "reset":
            record = reset(record, Reset.model_validate(inputs[0])).record
        else:
            record = advance(record.model_copy(update={"epoch": epoch}), [_input(one) for one in inputs], at).record
    return record


def _input(logged: Mapping[str, object]) -> AnyInput:
    return INPUT.validate_python(logged)
