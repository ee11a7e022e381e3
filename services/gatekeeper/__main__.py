"""`python -m services.gatekeeper`."""

import sys

from services.gatekeeper.app import build
from services.gatekeeper.settings import GatekeeperSettings
from shared.runtime.errors import SettingsError

if __name__ == "__main__":
    try:
        settings = GatekeeperSettings.load()
    except SettingsError as error:
        sys.exit(f"gatekeeper: {error}")
    build(settings).main()
