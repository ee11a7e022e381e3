"""Notices that a stream has lost messages which it had acknowledged: its store was emptied, or taken back.

Where one service publishes alone into a stream, the stream's last number says so. Where several do, others may have
filled it up again, and the last message on each subject of one's own says so.
"""

from collections.abc import Iterable, Mapping

from shared.runtime.broker import Broker
from shared.runtime.marks import Sent, tracked_subject
from shared.runtime.topology import STREAMS


class StreamIsBehind(Exception):
    """The broker has given a number that is not above one that it gave before: it has lost what lay between."""

    def __init__(self, stream: str, survived: Mapping[str, int]) -> None:
        super().__init__(f"stream {stream} is behind what it acknowledged")
        self.stream = stream
        self.survived = survived
        """By subject that has lost messages: up to which number they are still there."""


class Numbers:
    """The highest number acknowledged, by stream and subject that is kept track of."""

    def __init__(self, highest: dict[str, dict[str, int]]) -> None:
        self.highest = highest

    def remember(self, stream: str, sent: Iterable[Sent]) -> None:
        """The broker has these."""
        highest = self.highest.setdefault(stream, {})
        for one in sent:
            tracked = tracked_subject(stream, one.subject)
            highest[tracked] = max(one.seq, highest.get(tracked, 0))

    def see(self, stream: str, first: int) -> None:
        """Hold the first number of what was just stored against those given before; raise `StreamIsBehind`.

        That is how a stream is noticed which was lost without a reconnect. Where others publish too, nobody can say by
        then what of ours is left.
        """
        last = first - 1 if STREAMS[stream].one_publisher else 0
        if survived := {subject: last for subject, seq in self.highest.get(stream, {}).items() if seq >= first}:
            raise StreamIsBehind(stream, survived)


async def what_survived(broker: Broker, stream: str, recorded: Mapping[str, int], on: int) -> dict[str, int]:
    """By subject that has lost messages: up to which number they are still there. Empty where nothing is lost.

    `recorded` is the highest number acknowledged per subject, as `shared.runtime.marks` keeps it; `on` is the number
    of the connection on which to ask.
    """
    first, last = await broker.range_of(stream, on=on)
    if STREAMS[stream].one_publisher:
        return {subject: last for subject, seq in recorded.items() if last < seq}
    survived = {}
    for subject, seq in recorded.items():
        found = await broker.last_on(stream, subject, on=on)
        has_expired = found is None and first > seq
        if (found or 0) < seq and not has_expired:
            survived[subject] = found or 0
    return survived
