"""Fresh databases for tests: copied from templates, which PostgreSQL does in some ten milliseconds."""

import itertools
from dataclasses import dataclass, field
from typing import Protocol

import asyncpg

from infra.postgres.provision import owner_role, provision, roles
from shared.contracts.subjects import SERVICES
from shared.runtime.migrate import migrate
from tests.servers import PostgresServer

EVERY_SERVICE = SERVICES
"""For `fresh(..., migrated=EVERY_SERVICE)`."""


@dataclass(frozen=True)
class ServiceDatabase:
    """A database of one test: every service's schema and roles, and the tables of those that were migrated."""

    service: str
    name: str
    server: PostgresServer

    @property
    def url(self) -> str:
        """The service's own login: rows of its own schema, as in a deployment."""
        return self.url_of(self.service)

    @property
    def owner_url(self) -> str:
        """The login that runs migrations."""
        return self.url_of(owner_role(self.service))

    @property
    def superuser_url(self) -> str:
        return self.server.superuser_url(self.name)

    def url_of(self, role: str) -> str:
        """Another role's login to the same database."""
        return self.server.postgres.url(role, self.server.password(role), self.name)


class FreshDatabase(Protocol):
    """What the fixture `service_database` gives."""

    async def __call__(self, service: str, *, migrated: tuple[str, ...] | None = None) -> ServiceDatabase:
        """A fresh database for a test of `service`; `migrated` says whose schemas hold tables, else its own does."""


@dataclass
class Databases:
    """Makes databases on one server; each kind is provisioned and migrated once, then copied."""

    server: PostgresServer
    _templates: dict[tuple[str, ...], str] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def fresh(self, service: str, *, migrated: tuple[str, ...] | None = None) -> ServiceDatabase:
        """A database for one test of `service`; its schema is migrated, unless `migrated` says which are."""
        template = await self._template((service,) if migrated is None else migrated)
        name = f"test_{next(self._numbers)}"
        connection = await asyncpg.connect(self.server.superuser_url())
        try:
            # Copying does not carry the grants on the database itself along, as provision sets them.
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
            await connection.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
            await connection.execute(f"GRANT CONNECT ON DATABASE {name} TO {', '.join(roles())}")
        finally:
            await connection.close()
        return ServiceDatabase(service, name, self.server)

    async def drop(self, database: ServiceDatabase) -> None:
        """Remove it, whoever is connected still."""
        connection = await asyncpg.connect(self.server.superuser_url())
        try:
            await connection.execute(f"DROP DATABASE {database.name} WITH (FORCE)")
        finally:
            await connection.close()

    async def _template(self, migrated: tuple[str, ...]) -> str:
        if migrated not in self._templates:
            name = "_".join(("template_of", *migrated))
            passwords = {role: self.server.password(role) for role in roles()}
            await provision(self.server.superuser_url(), passwords, database=name)
            for service in migrated:
                owner = owner_role(service)
                await migrate(service, self.server.postgres.url(owner, passwords[owner], name))
            self._templates[migrated] = name
        return self._templates[migrated]
