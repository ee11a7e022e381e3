"""This machine, as the observer sees it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from services.watcher.domain import Finding, is_alive
from services.watcher.store import Term
from services.watcher.words import Words
from shared.backends.clusters import LOCAL
from shared.backends.local.client import LocalClient
from shared.backends.local.sightings import Observation, Seen


class LocalEyes:
    """Reads the records of the local backend."""

    cluster: Final = LOCAL

    def __init__(self, observe: Callable[[], Observation], client: LocalClient, words: Words) -> None:
        self._observe = observe
        self._client = client
        self._words = words

    async def begin(self) -> None:
        """As the protocol says: the records say all."""

    async def keep(self, term: Term) -> None:
        """As the protocol says: nothing."""

    async def observe(self) -> Observation:
        """As the protocol says."""
        return await asyncio.to_thread(self._observe)

    async def find(self, job: str, attempt: int) -> Sequence[Seen]:
        """As the protocol says: released records, too."""
        return await self._client.find(job, attempt)

    def found(self, sightings: Iterable[Seen]) -> list[Finding]:
        """As the protocol says."""
        return self._words.found(sightings)

    def is_alive(self, sighting: Seen) -> bool:
        """As the protocol says."""
        return is_alive(sighting)
