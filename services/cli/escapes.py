"""Text that others wrote, made safe to print: a job's name or log line must not drive the terminal or forge a line.

Everything that the CLI prints for people goes through here. `marked` is for text with rich's markup around it.
"""

import codecs
import json
from collections.abc import Iterator
from typing import Any

from rich.markup import escape


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that is not printable (controls, C1, bidirectional marks, line ends) as an escape
    such as `\\x1b`; those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def marked(text: str) -> str:
    """`text`, printable, and without meaning as rich's markup."""
    return escape(printable(text))


def printable_chunks(chunks: Iterator[bytes]) -> Iterator[str]:
    """A log's bytes for a terminal: only line ends and tabs keep their effect. A character may span two chunks."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chunks:
        yield printable(decoder.decode(chunk), keep="\n\t")
    yield printable(decoder.decode(b"", final=True), keep="\n\t")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that reads as it should and holds no character that a terminal acts on: those stand as \\uXXXX."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
