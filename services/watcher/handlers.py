"""One function per message: whose end is owed, and who asks for the newest fact again."""

from collections.abc import Callable, Sequence

from services.watcher.domain import watch
from services.watcher.store import Store
from shared.contracts.events import decode_event, newest_by_job
from shared.lifecycle.record import JobRecord
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
        self._look()
        await self.take([decode_event(delivery.body).job for delivery in deliveries])

    async def audited(self, records: Sequence[JobRecord]) -> None:
        """Act on records that an audit asked for."""
        await self.take(records, answer=False)

    async def take(self, records: Sequence[JobRecord], *, answer: bool = True) -> None:
        """Note what these records ask; without `answer` one that was seen before asks nothing."""
        watches = [watch(record) for record in newest_by_job(records).values()]
        launched = [asked for asked in watches if asked.launched]
        new = await self._store.write(launched, self._clock.now()) if launched else set()
        if again := [asked for asked in watches if asked.attempt > 1]:
            await self._store.overtake(again)
        questions = [asked for asked in launched if asked.owed and asked.key not in new]
        if answer and questions:
            await self._store.answer(questions)
