"""Brings the database to what this version of the code needs, however often: `python -m infra.containers.databases`."""

import asyncio
import sys
from pathlib import Path

from infra.containers.secrets import password_file, url
from infra.containers.settings import StoreSettings
from infra.postgres.provision import owner_role, provision, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.errors import SettingsError
from shared.runtime.migrate import migrate


async def prepare(settings: StoreSettings) -> None:
    """Roles, schemas, migrations."""
    admin = settings.secrets_folder / "admin"
    passwords = {role: (admin / password_file(role)).read_text() for role in roles()}
    await provision((admin / "superuser.database-url").read_text(), passwords)
    for service in SERVICES:
        owner = owner_role(service)
        await migrate(service, url(settings, owner, passwords[owner]))


def missing(folder: Path) -> str | None:
    """What to do where the secrets were not made yet."""
    return None if folder.is_dir() else f"{folder} is not there: run `python -m infra.containers.secrets` first"


if __name__ == "__main__":
    try:
        given = StoreSettings.load()
    except SettingsError as error:
        sys.exit(f"databases: {error}")
    if why := missing(given.secrets_folder / "admin"):
        sys.exit(f"databases: {why}")
    asyncio.run(prepare(given))
