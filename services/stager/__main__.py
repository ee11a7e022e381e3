"""`python -m services.stager`."""

import sys

from services.stager.app import create
from services.stager.settings import StagerSettings
from shared.runtime.errors import SettingsError


def main() -> None:
    """Run until SIGTERM; a wrong setting stops the start and is named."""
    try:
        service = create(StagerSettings.load())
    except SettingsError as error:
        sys.exit(f"stager: {error}")
    service.main()


if __name__ == "__main__":
    main()
