"""Reading server-sent events (the WHATWG HTML standard's event stream format)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream; `id` is what to send as Last-Event-ID to go on after it."""

    event: str
    data: str
    id: str | None


def read_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events in a stream of lines without their line ends; comments (keep-alives) are skipped."""
    event, data, last_id = "message", list[str](), None
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(event, "\n".join(data), last_id)
            event, data = "message", []
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                last_id = value
