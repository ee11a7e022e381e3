"""`python -m services.metering`."""

import sys

from services.metering.app import build
from services.metering.settings import MeteringSettings
from shared.runtime.errors import SettingsError

if __name__ == "__main__":
    try:
        settings = MeteringSettings.load()
    except SettingsError as error:
        sys.exit(f"metering: {error}")
    build(settings).main()
