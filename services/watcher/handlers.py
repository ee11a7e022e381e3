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
        launched = [asked for asked in newest.values() if asked.launched]
        new = await self._store.write(launched, self._clock.now()) if launched else set()
        if again := [asked for asked in newest.values() if asked.attempt > 1]:
            await self._store.overtake(again)
        if questions := [asked for asked in launched if asked.owed and asked.key not in new]:
            await self._store.answer(questions)
