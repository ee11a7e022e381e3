"""What the broker answers to a publish into a stream."""

from dataclasses import dataclass
from typing import Any

import orjson
from nats.aio.msg import Msg

from shared.runtime.errors import BrokerUnavailable, PublishRefused


@dataclass(frozen=True, slots=True)
class Stored:
    """The broker has the message on disk."""

    stream: str
    last_seq: int
    duplicate: bool


def stored(subject: str, reply: Msg) -> Stored:
    """The broker's acknowledgement; raises where it says that it has not stored the message."""
    answer: dict[str, Any] = orjson.loads(reply.data)
    if error := answer.get("error"):
        if error.get("code") == 503:
            raise BrokerUnavailable(f"{subject}: {error.get('description')}")
        raise PublishRefused(f"{subject}: {error.get('description')}", int(error.get("err_code", 0)))
    return Stored(answer["stream"], int(answer["seq"]), bool(answer.get("duplicate", False)))
