"""What `api` does with messages: facts from the services, queries of its slice, and its own housekeeping."""

from typing import Final

from services.api.announce import ROUND_SECONDS, Announcer
from services.api.domain import BadFact, read_fact
from services.api.facts import Facts
from services.api.newest import Newest
from services.api.resets import PAGE_SECONDS, Resets
from services.api.restore import Restore
from services.api.specs import Specs
from services.api.stored import Stored
from shared.runtime.errors import Final as NeverWorks
from shared.runtime.messages import Delivery
from shared.runtime.service import Service

KEYS_KEPT_HOURS: Final = 24
FACTS_IN_A_BATCH: Final = 500

PURGE_KEYS: Final = "DELETE FROM idempotency WHERE created_at < now() - make_interval(hours => $1)"


def register(
    service: Service, facts: Facts, announcer: Announcer, resets: Resets, restore: Restore, stored: Stored
) -> None:
    """Declare the consumer, the queries and the ticks."""
    specs = Specs(service.db)
    newest = Newest(service.db, resets)

    @service.consume("api", batch=FACTS_IN_A_BATCH)
    async def on_facts(deliveries: list[Delivery]) -> None:
        """Apply a batch of facts in one transaction; where one is bad the runtime tries them singly, and parks that.
        After a restore every open job is told again first, so that each says what may be missing."""
        if service.standing.restoring:
            await resets.over()
        try:
            await facts.take([read_fact(delivery.subject, delivery.body) for delivery in deliveries])
        except BadFact as error:
            raise NeverWorks(str(error)) from error

    @service.rpc("specs")
    async def on_specs(request: bytes) -> bytes:
        """The specs of a tenant's digests."""
        return await specs.asked(request)

    @service.rpc("newest")
    async def on_newest(request: bytes) -> bytes:
        """The newest event of each of these jobs."""
        return await newest.asked(request)

    @service.on_store_lost
    async def on_lost_events(stream: str) -> None:
        """Who has heard what of the lost events is not known."""
        service.log.error("the broker has lost events: every open job is told again", stream=stream)
        await resets.ask()

    @service.every(5)
    async def sweep_orphans() -> None:
        """Facts that came before their job's row."""
        await facts.sweep()

    @service.every(5)
    async def sweep_blobs() -> None:
        """Blobs that nobody names, which no request has removed."""
        await stored.remove()

    @service.every(600)
    async def forget_snapshots() -> None:
        """Those that no job has named."""
        forgotten = await stored.forget()
        if forgotten:
            service.log.info("snapshots that no job named are forgotten", count=forgotten)

    @service.every(PAGE_SECONDS)
    async def tell_again() -> None:
        """Every open job, where that is asked for."""
        told = await resets.page()
        if told:
            service.log.info("open jobs told again", count=told)

    @service.every(1)
    async def end_restore() -> None:
        """Once all that runs has been seen."""
        await restore.step()

    @service.every(ROUND_SECONDS)
    async def ask_again() -> None:
        """About jobs that do not move."""
        asked = await announcer.round()
        if asked:
            service.log.warning("jobs do not move, asking again", count=asked)

    @service.every(600)
    async def purge_keys() -> None:
        """Idempotency keys older than a day."""
        await service.db.execute(PURGE_KEYS, KEYS_KEPT_HOURS)
