"""Wires metering: settings, stores, handlers."""

from services.metering.handlers import Metering
from services.metering.settings import MeteringSettings
from shared.runtime.service import Service


def build(settings: MeteringSettings) -> Service:
    """The service, ready to run."""
    service = Service("metering", settings)
    metering = Metering(service.db)
    service.consume("metering")(metering.on_events)
    service.rpc("usage")(metering.usage)
    return service
