"""What a probe of a workstation's activity is."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Watched(NamedTuple):
    """One workstation: everything of it is below `supervisor`, where `prober` is nothing of it. `uid` is its user."""

    supervisor: int
    prober: int
    uid: int
    port: int
    heartbeat: str
    devices: tuple[int, ...]


class Probe(Protocol):
    """One way to see that somebody, or something, uses a workstation. Looks every few seconds, in a process apart."""

    @property
    def name(self) -> str:
        """A word; as it stands in records and in what users are told."""

    def look(self, at_ms: int) -> int | None:
        """When it was last active as far as this look shows: `at_ms`, which is now, or earlier; None: no activity.

        Whatever it raises means that nothing is known.
        """
