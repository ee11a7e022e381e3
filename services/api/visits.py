"""How a browser gets to a workstation: a ticket that is good once, and the cookie that it is exchanged for.

Only hashes are kept, in the database, so that every replica knows them. Both are good for one workstation only, until
they expire or the token that they came from is revoked.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from services.api.access import Caller
from shared.runtime.database import Database

TICKET_SECONDS: Final = 120
COOKIE_SECONDS: Final = 12 * 3600

ISSUE: Final = "INSERT INTO visits (hash, kind, token, job, expires_at) VALUES ($1, 'ticket', $2, $3, $4)"

# The ticket is gone once it was looked at: of two who bring it one gets a cookie.
REDEEM: Final = """
WITH used AS (DELETE FROM visits WHERE hash = $1 AND job = $2 AND kind = 'ticket' RETURNING token, expires_at)
INSERT INTO visits (hash, kind, token, job, expires_at)
SELECT $3, 'cookie', tokens.id, $2, $5 FROM used JOIN tokens ON tokens.id = used.token
WHERE used.expires_at > $4 AND tokens.revoked_at IS NULL
RETURNING 1
"""
FIND: Final = """
SELECT tokens.id, tenant, user_name, role, expires_at FROM visits JOIN tokens ON tokens.id = visits.token
WHERE visits.hash = ANY($1) AND job = $2 AND kind = 'cookie' AND expires_at > $3 AND revoked_at IS NULL
ORDER BY expires_at DESC LIMIT 1
"""
STILL: Final = "SELECT 1 FROM tokens WHERE id = $1 AND revoked_at IS NULL"
SWEEP: Final = "DELETE FROM visits WHERE expires_at < $1"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who holds a cookie, and until when."""

    caller: Caller
    until: datetime


class Visits:
    """The table `visits`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ticket(self, caller: Caller, job: str, now: datetime) -> tuple[str, datetime]:
        """A new ticket to this workstation, and when it expires."""
        ticket, until = secrets.token_urlsafe(32), now + timedelta(seconds=TICKET_SECONDS)
        await self._database.execute(ISSUE, _hash(ticket), caller.token_id, job, until)
        return ticket, until

    async def redeem(self, ticket: str, job: str, now: datetime) -> str | None:
        """The cookie for a ticket to this workstation; None for one that is used, expired, unknown or not for it."""
        cookie, until = secrets.token_urlsafe(32), now + timedelta(seconds=COOKIE_SECONDS)
        made = await self._database.fetchval(REDEEM, _hash(ticket), job, _hash(cookie), now, until)
        return None if made is None else cookie

    async def visitor(self, cookies: Iterable[str], job: str, now: datetime) -> Visitor | None:
        """Who holds one of these cookies, if one is for this workstation and good still: the one that is so longest."""
        row = await self._database.fetchrow(FIND, [_hash(cookie) for cookie in cookies], job, now)
        if row is None:
            return None
        return Visitor(Caller(row["id"], row["tenant"], row["user_name"], row["role"]), row["expires_at"])

    async def may_stay(self, caller: Caller) -> bool:
        """Whether the token that let somebody in is good still."""
        return await self._database.fetchval(STILL, caller.token_id) is not None

    async def sweep(self, now: datetime) -> None:
        """Remove what has expired."""
        await self._database.execute(SWEEP, now)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
