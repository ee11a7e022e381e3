"""Wires metering: settings, stores, handlers."""

import asyncio
from typing import Final

from services.metering.handlers import Metering
from services.metering.ledger import Ledger
from services.metering.settings import MeteringSettings
from shared.runtime.errors import BrokerUnavailable
from shared.runtime.service import Service

_PAUSE_SECONDS: Final = 0.5


def build(settings: MeteringSettings) -> Service:
    """The service, ready to run."""
    service = Service("metering", settings)
    metering = Metering(service.db)
    service.consume("metering")(metering.on_events)
    ledger = Ledger(service.db, service.broker.next_on, service.log)

    @service.on_start
    async def catch_up() -> None:
        """After a restore of the database, before it bills anything."""
        while service.standing.restoring:
            try:
                await ledger.catch_up()
                break
            except BrokerUnavailable as error:  # an emptied store gets its streams anew
                service.log.warning("waiting for the ledger", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    service.rpc("usage")(metering.usage)
    return service
