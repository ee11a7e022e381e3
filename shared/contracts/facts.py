"""A fact on the wire: JSON body, the sender taken from the subject."""

from typing import NamedTuple

from shared.contracts.subjects import FACT_KINDS, fact_subject
from shared.lifecycle.facts import FACT, AnyFact


class WireFact(NamedTuple):
    """A fact ready to be published. `key` (the job) orders a sender's facts."""

    subject: str
    msg_id: str
    key: str
    body: bytes


class NotYours(ValueError):
    """A service reported a kind of fact that it may not send."""


def encode_fact(service: str, fact: AnyFact, *, answer: int | None = None) -> WireFact:
    """The message for a fact. `answer` makes a new message id for telling a known fact again when asked."""
    if fact.kind not in FACT_KINDS[service]:
        raise NotYours(f"{service} may not report {fact.kind}: it may report {', '.join(FACT_KINDS[service])}")
    msg_id = f"{service}/{fact.job}/{fact.attempt}/{fact.kind}/{fact.version.epoch}.{fact.version.n}"
    suffix = "" if answer is None else f"/again.{answer}"
    return WireFact(
        fact_subject(service, fact.kind), msg_id + suffix, fact.job, fact.model_dump_json(exclude_none=True).encode()
    )


def decode_fact(subject: str, body: bytes) -> AnyFact:
    """Read a fact from `facts.v1.<service>.<kind>`; raises NotYours where subject and body disagree, or
    pydantic's ValidationError where the body is no fact."""
    service, kind = subject.split(".")[-2:]
    fact = FACT.validate_json(body)
    if fact.kind != kind or kind not in FACT_KINDS.get(service, ()):
        raise NotYours(f"a fact of kind {fact.kind} came on {subject}: {service} may not report it there")
    return fact
