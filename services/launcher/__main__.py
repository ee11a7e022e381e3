"""`python -m services.launcher`."""

import sys

from services.launcher.app import create
from services.launcher.settings import LauncherSettings
from shared.runtime.errors import SettingsError


def main() -> None:
    """Run until SIGTERM; a wrong setting stops the start and is named."""
    try:
        settings = LauncherSettings.load()
    except SettingsError as error:
        sys.exit(f"launcher: {error}")
    create(settings).main()


if __name__ == "__main__":
    main()
