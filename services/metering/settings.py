"""What metering is told at its start."""

from shared.runtime.settings import ServiceSettings


class MeteringSettings(ServiceSettings):
    """The settings that every service has."""
