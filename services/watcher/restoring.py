"""After a restore of the database: what the lost time has released is looked at too, and told anew."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from services.watcher.store import Store, Term
from services.watcher.words import Words
from shared.backends.clusters import LOCAL
from shared.backends.local.client import LocalClient
from shared.runtime.logs import Log
from shared.runtime.standing import Standing


class Restoring:
    """Brings the watcher into step: what is open is told anew by the look that comes before, the rest here."""

    def __init__(
        self,
        store: Store,
        backend: LocalClient,
        words: Words,
        log: Log,
        *,
        clusters: Iterable[str] = (LOCAL,),
        standing: Callable[[], Standing],
        in_step: Callable[[], Awaitable[None]],
    ) -> None:
        """`clusters`: each has to be seen whole once."""
        self._store = store
        self._backend = backend
        self._words = words
        self._log = log
        self._standing = standing
        self._in_step = in_step
        self._clusters = frozenset(clusters)
        self._seen: set[tuple[int, str]] = set()

    @property
    def under_way(self) -> bool:
        """Whether a complete observation is owed that includes what was released."""
        return self._standing().restoring

    async def once(self, term: Term, at: datetime) -> None:
        """A cluster was seen whole. Of this machine also everything is told that was released since the backup, page by
        page. Once all were seen the watcher is in step.

        Safe to begin anew: what was told in this epoch is not told again. Raises CouldNotAsk where it cannot be known.
        """
        if term.cluster == LOCAL:
            await self._tell_released(term, at)
        self._seen.add((term.epoch, term.cluster))
        if all((term.epoch, cluster) in self._seen for cluster in self._clusters):
            await self._in_step()

    async def _tell_released(self, term: Term, at: datetime) -> None:
        seen = told = 0
        async for page in self._backend.released(self._standing().backup_at):
            seen += len(page)
            told += await self._store.tell(term, self._words.found(page), at)
        self._log.info("looked at what was released since the backup", records=seen, told=told)
