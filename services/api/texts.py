"""Texts that PostgreSQL and JSON can hold: no NUL, no half of a surrogate pair."""

from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]


def not_storable(value: Any) -> tuple[Place, str] | None:
    """Where in `value` a text is that cannot be stored, and why; None where all of them can."""
    for place, text in _texts(value, ()):
        if "\0" in text:
            return place, "it holds a NUL character: take it out"
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            return place, (
                "it holds half a character: names that are not UTF-8 cannot be given, pack such files into an archive"
            )
    return None


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, (*place, key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _texts(part, (*place, index))
