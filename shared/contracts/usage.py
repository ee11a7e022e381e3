"""The usage ledger on the wire (`usage.v1.<tenant>.segment`): JSON bodies, one line per message.

The sum of `gpu_milliseconds` over all lines is the usage: a correction takes the earlier line back with a reversal of
the same size below zero, and adds a new line. Lines repeat (delivery is at least once): `id` tells them apart for ever.
"""

from typing import Literal, NamedTuple

from pydantic import AwareDatetime

from shared.contracts.subjects import usage_subject
from shared.lifecycle.facts import Frozen


class UsageLine(Frozen):
    """One segment of holding GPUs that has ended, or the reversal of such a line.

    Times are the backend's own. `estimated`: the end was not seen. `billable` is false where the infrastructure ended
    it. `id` is job/attempt/submission/restart/revision, with /reversed behind it for a reversal.
    """

    version: Literal[1] = 1
    id: str
    kind: Literal["segment", "reversal"]
    revision: int
    tenant: str
    user: str
    project: str
    job: str
    attempt: int
    submission: str
    restart: int
    coretype: str
    gpus: int
    started_at: AwareDatetime | None
    ended_at: AwareDatetime
    suspended_ms: int
    gpu_milliseconds: int
    estimated: bool
    billable: bool


class WireLine(NamedTuple):
    """A line ready to be published. `key` (the job) orders the lines of a job."""

    subject: str
    msg_id: str
    key: str
    body: bytes


def encode_line(line: UsageLine) -> WireLine:
    """The message for a line; its id is the line's."""
    return WireLine(usage_subject(line.tenant, "segment"), line.id, line.job, line.model_dump_json().encode())


def decode_line(body: bytes) -> UsageLine:
    """Read a line; raises pydantic's ValidationError where it is none."""
    return UsageLine.model_validate_json(body)
