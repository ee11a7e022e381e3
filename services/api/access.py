"""Who may come in: tokens, kept as sha256 only, each with its tenant, user and role."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.api.problems import Problem
from services.api.settings import BootstrapToken
from shared.contracts.ids import new_id
from shared.contracts.subjects import is_tenant_name
from shared.runtime.database import Database, Tx

_PREFIX: Final = "tg_"

FIND: Final = "SELECT id, tenant, user_name, role FROM tokens WHERE hash = $1 AND revoked_at IS NULL"
ADD_TENANT: Final = "INSERT INTO tenants (name) VALUES ($1) ON CONFLICT DO NOTHING"
INSERT: Final = """
INSERT INTO tokens (id, hash, tenant, user_name, role, name, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (hash) DO NOTHING
"""
LIST: Final = """
SELECT id, tenant, user_name AS "user", role, name, created_at, revoked_at FROM tokens ORDER BY id DESC LIMIT 1000
"""
OTHER_TENANT: Final = "SELECT name FROM tenants WHERE name <> $1 LIMIT 1"
ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('tidegate.api.tokens', 0))"
OTHER_ADMINS: Final = "SELECT count(*) FROM tokens WHERE role = 'admin' AND revoked_at IS NULL AND id <> $1"
REVOKE: Final = "UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1 RETURNING id"
TENANT: Final = "SELECT 1 FROM tenants WHERE name = $1"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token came with the request."""

    token_id: str
    tenant: str
    user: str
    role: str

    @property
    def is_admin(self) -> bool:
        """May set quotas, make tokens and re-drive dead letters."""
        return self.role == "admin"


class Access:
    """The tables `tokens` and `tenants`."""

    def __init__(self, database: Database, *, single_tenant: bool) -> None:
        self._database = database
        self._single_tenant = single_tenant

    async def who(self, token: str) -> Caller | None:
        """The holder of a token; None where it is unknown or revoked."""
        row = await self._database.fetchrow(FIND, _hash(token))
        return None if row is None else Caller(row["id"], row["tenant"], row["user_name"], row["role"])

    async def bootstrap(self, tokens: Iterable[BootstrapToken], now: datetime) -> None:
        """Have these tokens known; a second start changes nothing, and a revoked one stays revoked."""
        async with self._database.transaction() as tx:
            await tx.execute(ALONE)
            for given in tokens:
                await self._add(
                    tx, given.token.get_secret_value(), given.tenant, given.user, given.role, "bootstrap", now
                )

    async def create(self, tenant: str, user: str, role: str, name: str | None, now: datetime) -> tuple[str, str]:
        """A new token: its id, and the token itself, which nobody can read again."""
        token = _PREFIX + secrets.token_urlsafe(32)
        async with self._database.transaction() as tx:
            await tx.execute(ALONE)
            return await self._add(tx, token, tenant, user, role, name, now), token

    async def _add(self, tx: Tx, token: str, tenant: str, user: str, role: str, name: str | None, now: datetime) -> str:
        if not is_tenant_name(tenant):
            raise Problem("invalid", f"{tenant[:60]!r} is no tenant's name: use 1 to 40 of a-z, 0-9 and inner dashes")
        if self._single_tenant and (other := await tx.fetchval(OTHER_TENANT, tenant)) is not None:
            raise Problem(
                "conflict",
                f"tenant {tenant!r} is refused: this stack does not run as root, so the jobs of two tenants would run "
                f"as one user and could read each other's files. Use the tenant {other!r}, or start the stack as root",
            )
        token_id = new_id("t", now)
        await tx.execute(ADD_TENANT, tenant)
        await tx.execute(INSERT, token_id, _hash(token), tenant, user, role, name, now)
        return token_id

    async def tokens(self) -> list[dict[str, Any]]:
        """All tokens, newest first, without their values."""
        return [dict(row) for row in await self._database.fetch(LIST)]

    async def revoke(self, token_id: str, now: datetime) -> bool:
        """Make a token worthless at once; False where there is none. The last admin's is kept."""
        async with self._database.transaction() as tx:
            await tx.execute(ALONE)
            if not await tx.fetchval(OTHER_ADMINS, token_id):
                raise Problem("conflict", "this is the last admin's token: make another one before you revoke it")
            return await tx.fetchval(REVOKE, token_id, now) is not None

    async def has_tenant(self, tenant: str) -> bool:
        """Whether a token was ever made for it."""
        return await self._database.fetchval(TENANT, tenant) is not None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
