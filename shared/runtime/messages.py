"""What a consumer's handler gets."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message from a stream, as delivered now. Deliveries repeat: handlers are idempotent."""

    subject: str
    body: bytes
    headers: Mapping[str, str]
    deliveries: int
    """How often the broker has delivered it, this time included."""
    stream_seq: int
    """Its place in the stream; it starts anew when the broker's store is lost."""
