"""Texts that PostgreSQL and JSON can hold: no NUL, no half of a surrogate pair."""

from typing import Annotated

from pydantic import AfterValidator


def storable(text: str) -> str:
    """The text itself; raises ValueError where it cannot be stored."""
    if "\0" in text:
        raise ValueError("it holds a NUL character: take it out")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("it holds half a character, which is no text: take it out")
    return text


Storable = Annotated[str, AfterValidator(storable)]
