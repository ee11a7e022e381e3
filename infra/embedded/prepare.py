"""Brings a stack's stores to what this version of the code needs: roles, schemas, migrations, NATS users.

`python -m infra.embedded.prepare HOME SOCKET_FOLDER NATS_PORT`, once PostgreSQL answers and before nats-server starts.
One process for all of it, because starting Python and importing Alembic takes longer than the work. Safe to repeat.
"""

import asyncio
import sys
from pathlib import Path

from infra.embedded.binaries import find_nats
from infra.embedded.home import Home
from infra.embedded.nats import Nats
from infra.embedded.postgres import SUPERUSER, socket_url
from infra.nats.permissions import ADMIN
from infra.postgres.provision import owner_role, provision, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.migrate import migrate


async def prepare(home: Home, socket: Path, nats_port: int) -> None:
    """Everything between the servers' start and the services'."""
    nats_users = (ADMIN, *SERVICES)
    nats = Nats(find_nats(), home.nats, nats_port)
    nats.configure({user: home.secret(f"{user}.nats.password") for user in nats_users})
    passwords = {role: home.secret(f"{role}.postgres.password") for role in (SUPERUSER, *roles())}
    superuser = socket_url(socket, SUPERUSER, passwords[SUPERUSER], "postgres")
    await provision(superuser, {role: passwords[role] for role in roles()})
    for service in SERVICES:
        owner = owner_role(service)
        await migrate(service, socket_url(socket, owner, passwords[owner]))


if __name__ == "__main__":
    root, folder, port = sys.argv[1:]
    asyncio.run(prepare(Home(Path(root)), Path(folder), int(port)))
