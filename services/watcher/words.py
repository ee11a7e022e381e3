"""From sightings to findings, and what becomes of words that the table does not know."""

from collections.abc import Iterable

from opentelemetry.metrics import Meter

from services.watcher.domain import Finding, Unknown, findings, tenant_of
from shared.backends.local.sightings import Seen
from shared.runtime.logs import Log


class Words:
    """Reads sightings by the table; an unknown word is counted, logged once, and never an end."""

    def __init__(self, log: Log, meter: Meter) -> None:
        self._log = log
        self._count = meter.create_counter("tidegate_unknown_words", description="Words that the mapping lacks")
        self.unknown: set[str] = set()

    def found(self, sightings: Iterable[Seen]) -> list[Finding]:
        """What is to be told of them."""
        found: list[Finding] = []
        for seen in sightings:
            result = findings(seen)
            if isinstance(result, Unknown):
                self._note(result.word)
            elif result and tenant_of(seen) is None:
                self._note("no tenant in the records")
            else:
                found += result
        return found

    def _note(self, word: str) -> None:
        self._count.add(1, {"word": word[:40]})
        if word not in self.unknown:
            self.unknown.add(word)
            self._log.warning("a word of the backend is unknown: the job keeps its state", word=word)
