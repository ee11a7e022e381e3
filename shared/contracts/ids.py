"""Ids: a letter and a ULID in lower case, so that they sort by time and fit Kubernetes names and paths.

Source: the ULID specification (48 bits of milliseconds, 80 bits of randomness, Crockford's base 32).
"""

import re
import secrets
from datetime import datetime
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ID: Final = re.compile(rf"[jp][{_ALPHABET}]{{26}}")


def new_id(prefix: str, now: datetime) -> str:
    """A new id at the instant `now`: `j…` for jobs, `p…` for pipelines."""
    number = (int(now.timestamp() * 1000) << 80) | secrets.randbits(80)
    return prefix + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def made_at_ms(id_: str) -> int:
    """When an id was made: milliseconds since 1970. Of a job's that is when it was submitted."""
    number = 0
    for character in id_[1:]:
        number = number << 5 | _ALPHABET.index(character)
    return number >> 80


def is_id(text: str) -> bool:
    """Whether `text` has the form of an id (so that it may stand in a path)."""
    return _ID.fullmatch(text) is not None
