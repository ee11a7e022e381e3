"""A replica of `api` that relays, and nothing else: `python relaying_service.py`, with the usual settings."""

from shared.runtime.service import Service
from shared.runtime.settings import ServiceSettings

Service("api", ServiceSettings.load()).main()
