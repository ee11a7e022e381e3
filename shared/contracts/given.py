"""Names and reasons as people give them: what is shown in lists, logs and terminals is one printable line."""

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

from shared.contracts.snapshot import shown

LONGEST_NAME: Final = 100


def printable(what: str, longest: int) -> Callable[[str], str]:
    """A check that gives the text back; ValueError where it is blank, too long, or holds what cannot be printed
    (line breaks, control characters, and those that turn the direction of the text around it)."""

    def check(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"it has {len(text)} characters; {what} is 1 to {longest} printable characters")
        if not text.strip() or not text.isprintable():
            raise ValueError(
                f"{shown(text)} was given; {what} is 1 to {longest} printable characters on one line, not only blanks"
            )
        return text

    return check


Name = Annotated[
    str,
    AfterValidator(printable("a name", LONGEST_NAME)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}),
]
