"""Makes every password once, and lays before each container what it needs and no more.

`python -m infra.containers.secrets`; a folder of TIDEGATE_SECRETS_FOLDER is a volume of one container. Safe to repeat:
what is there stays, configuration is written anew. As root it gives each folder to the user that its container runs as.
"""

import json
import os
import secrets
import sys
import urllib.parse
from pathlib import Path
from typing import Final

from infra.containers.settings import SecretsSettings, StoreSettings
from infra.nats.config import render
from infra.nats.permissions import ADMIN
from infra.postgres.provision import DATABASE, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.errors import SettingsError

SUPERUSER: Final = "postgres"
_ROOT: Final = 0
_UNPRIVILEGED: Final = 10001
_POSTGRES: Final = 999  # of the postgres image
OWNERS: Final = {
    "postgres": _POSTGRES,
    "nats": _ROOT,
    "admin": _UNPRIVILEGED,
    "people": _UNPRIVILEGED,
    "api": _ROOT,
    "gatekeeper": _UNPRIVILEGED,
    "metering": _UNPRIVILEGED,
    "stager": _ROOT,
    "launcher": _ROOT,
    "watcher": _ROOT,
}
"""Which user each container runs as, as docker-compose.yml says."""


class Folder:
    """One container's secrets."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        self._owner = OWNERS[name]
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        self._give(self.path)

    def once(self, name: str, prefix: str = "") -> str:
        """The secret of that name, made where it is not there yet."""
        path = self.path / name
        if not path.exists():
            self.write(name, prefix + secrets.token_hex(32))
        return path.read_text()

    def write(self, name: str, text: str) -> None:
        """Whole or not at all, for its owner's eyes only."""
        part = self.path / f"{name}.part"
        part.touch(0o600)
        part.write_text(text)
        self._give(part)
        part.rename(self.path / name)

    def _give(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self._owner, self._owner)


def password_file(role: str) -> str:
    """The file in `admin` that holds a role's password at PostgreSQL."""
    return f"{role}.postgres.password"


def url(settings: StoreSettings, role: str, password: str, database: str = DATABASE) -> str:
    """The address of the database for one role."""
    quoted = urllib.parse.quote(password, safe="")
    return f"postgresql://{role}:{quoted}@{settings.postgres_host}:{settings.postgres_port}/{database}"


def lay_out(settings: SecretsSettings) -> None:
    """Everything, for all containers."""
    root = settings.secrets_folder
    admin = Folder(root, "admin")
    superuser = Folder(root, "postgres").once("password")
    admin.write("superuser.database-url", url(settings, SUPERUSER, superuser, SUPERUSER))
    admin.write("restored.database-url", url(settings, SUPERUSER, superuser))
    for role in roles():
        admin.once(password_file(role))
    passwords = {ADMIN: admin.once("nats.password")}
    for service in SERVICES:
        own = Folder(root, service)
        own.write("database-url", url(settings, service, admin.once(password_file(service))))
        passwords[service] = own.once("nats.password")
    nats = render(
        passwords=passwords, store_dir=str(settings.nats_store), host=settings.nats_host, port=settings.nats_port
    )
    Folder(root, "nats").write("nats.conf", nats)
    people = Folder(root, "people")
    person = {"tenant": settings.tenant, "user": settings.user}
    tokens = [
        person | {"token": people.once("token", "tgu_"), "role": "user"},
        person | {"token": people.once("admin-token", "tga_"), "role": "admin"},
    ]
    Folder(root, "api").write("bootstrap-tokens.json", json.dumps(tokens))


if __name__ == "__main__":
    try:
        lay_out(SecretsSettings.load())
    except SettingsError as error:
        sys.exit(f"secrets: {error}")
