"""Reading server-sent events (the WHATWG HTML standard's event stream format)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream; `id` is what to send as Last-Event-ID to go on after it."""

    event: str
    data: str
    id: str | None


class EventReader:
    """Reads a stream that breaks and is taken up again. `last_id` is what to send as Last-Event-ID: the server sets it
    also without an event, and one that came in part only does not count."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id

    def read(self, lines: Iterable[str]) -> Iterator[ServerEvent]:
        """The events in a stream of lines without their line ends; comments (keep-alives) are skipped."""
        event, data, last_id = "message", list[str](), self.last_id
        for line in lines:
            if not line:
                self.last_id = last_id
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
