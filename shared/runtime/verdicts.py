"""What becomes of a message whose handler raised: one function decides."""

import json
import random
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from shared.runtime.errors import DatabaseUnavailable, Unavailable
from shared.runtime.errors import Final as FinalError
from shared.runtime.topology import MAX_DELIVER

_DELAYS_SECONDS: Final = (0.1, 0.5, 2.0, 5.0, 15.0, 30.0, 60.0)
_UNPARSABLE: Final = (ValidationError, json.JSONDecodeError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Ack:
    """It was handled."""


@dataclass(frozen=True, slots=True)
class Nak:
    """Deliver it again after the delay."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Park:
    """Put it among the dead letters, with the reason, and acknowledge it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep it and run it again once the database is back: nothing else could be handled either."""


Verdict = Ack | Nak | Park | Wait


def verdict(error: Exception | None, deliveries: int) -> Verdict:
    """What to do with a message at its `deliveries`-th delivery, after `error` (None: none)."""
    if error is None:
        return Ack()
    if isinstance(error, DatabaseUnavailable):
        return Wait()
    if isinstance(error, (FinalError, *_UNPARSABLE)):
        return Park(_reason(error))
    if isinstance(error, Unavailable):
        return Nak(_delay(deliveries))
    if deliveries >= MAX_DELIVER:
        return Park(f"failed {deliveries} times, at last with {_reason(error)}")
    return Nak(_delay(deliveries))


def _delay(deliveries: int) -> float:
    """Growing, with a fifth of jitter so that what failed together does not come back together."""
    delay = _DELAYS_SECONDS[min(deliveries, len(_DELAYS_SECONDS)) - 1]
    return delay * random.uniform(0.8, 1.2)  # noqa: S311 # spreads load, protects nothing


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
