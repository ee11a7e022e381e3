"""One function per message: whose end is owed, and who asks for the newest fact again."""

from collections.abc import Callable

from services.watcher.domain import Watch, watch
from services.watcher.store import Store
from shared.contracts.events import decode_event
from shared.runtime.clock import Clock
from shared.runtime.messages import Delivery


class JobEvents:
    """The handler of the consumer `watcher`."""

    def __init__(self, store: Store, clock: Clock, look: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._look = look

    async def on_jobs(self, deliveries: list[Delivery]) -> None:
        """Note which attempts are to be watched; answer questions. Safe to redeliver: guarded by (epoch, seq)."""
        newest: dict[str, Watch] = {}
        for delivery in deliveries:
            asked = watch(decode_event(delivery.body).job)
            known = newest.get(asked.job)
            if known is None or known.seen < asked.seen:
                newest[asked.job] = asked
        self._look()
        async with self._store.database.transaction() as tx:
            rows = await self._store.lock(tx, sorted(newest))
            wanted, questions = [], []
            for asked in newest.values():
                known_versions = rows.get(asked.job, {})
                seen = max(known_versions.values(), default=(0, 0))
                if asked.seen == seen and asked.attempt in known_versions:
                    questions.append(asked)
                elif asked.seen > seen and (asked.launched or known_versions):
                    wanted.append(asked)
            await self._store.write(tx, wanted, self._clock.now())
            await self._store.answer(tx, [asked for asked in questions if asked.owed])
