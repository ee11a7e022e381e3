"""Facts of jobs without a row, as an operator sees them: what others worked on and this database does not know."""

from typing import Any, Final

import orjson

from shared.runtime.database import Database

LISTED: Final = 1000

LIST: Final = """
SELECT job, tenant, subject, epoch, n, body, at, count(*) OVER () AS total FROM orphans
ORDER BY at DESC, job, fact LIMIT $1
"""


async def orphans(database: Database) -> tuple[list[dict[str, Any]], int]:
    """The newest of them, and how many there are."""
    rows = await database.fetch(LIST, LISTED)
    return [_shown(row) for row in rows], rows[0]["total"] if rows else 0


def _shown(row: Any) -> dict[str, Any]:
    service, kind = row["subject"].split(".")[-2:]
    return {
        "job": row["job"],
        "tenant": row["tenant"],
        "attempt": orjson.loads(row["body"])["attempt"],
        "service": service,
        "kind": kind,
        "epoch": row["epoch"],
        "n": row["n"],
        "kept_at": row["at"],
    }
