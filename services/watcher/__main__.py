"""`python -m services.watcher`."""

import sys

from services.watcher.app import create
from services.watcher.settings import WatcherSettings
from shared.runtime.errors import SettingsError


def main() -> None:
    """Run until SIGTERM; a wrong setting stops the start and is named."""
    try:
        settings = WatcherSettings.load()
    except SettingsError as error:
        sys.exit(f"watcher: {error}")
    create(settings).main()


if __name__ == "__main__":
    main()
