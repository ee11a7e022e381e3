"""How many processes a service has, as `--replicas` says it, and what they are called."""

from collections.abc import Iterator, Mapping
from typing import Final

from shared.contracts.subjects import SERVICES

MOST: Final = 8
ALL: Final = "all"


class ReplicasError(ValueError):
    """Text that says no numbers of replicas; the sentence says what it should be."""


def parse(text: str) -> dict[str, int]:
    """`gatekeeper=2,launcher=3`; `all=2` gives the number of every service that is not named."""
    given: dict[str, int] = {}
    for part in text.split(","):
        name, separator, number = (word.strip() for word in part.partition("="))
        if not separator:
            raise ReplicasError(f"{part.strip()!r} is no SERVICE=N, as in gatekeeper=2,launcher=2 or all=2")
        if name not in (*SERVICES, ALL):
            raise ReplicasError(
                f"{name!r} cannot have replicas: name one of {', '.join(SERVICES)}, or {ALL} for each of them"
            )
        if name in given:
            raise ReplicasError(f"{name} is named twice: give it one number")
        given[name] = _number(name, number)
    others = given.pop(ALL, None)
    return given if others is None else dict.fromkeys(SERVICES, others) | given


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST):
        raise ReplicasError(f"{name}={text}: give a whole number from 1 to {MOST}")
    return int(text)


def count(service: str, replicas: Mapping[str, int]) -> int:
    """How many a service has; one where nothing is said of it."""
    return replicas.get(service, 1)


def names(service: str, replicas: Mapping[str, int]) -> Iterator[str]:
    """The first is called as the service, the others `SERVICE-2` and so on: what `ps` shows, and the lease's owner."""
    yield service
    yield from (f"{service}-{number}" for number in range(2, count(service, replicas) + 1))
