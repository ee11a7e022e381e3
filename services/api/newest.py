"""`rpc.v1.api.newest`: how it stands with jobs, for services that hold something of theirs since long."""

from typing import Final

from services.api.resets import Resets
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.database import Database

_ASKED_AT_MOST: Final = 100  # bodies of up to 4 KB: the answer stays below the broker's max_payload of 1 MB

NEWEST: Final = """
SELECT events.body, jobs.epoch < standing.epoch AS behind
FROM standing, jobs JOIN events ON (events.job, events.epoch, events.seq) = (jobs.id, jobs.epoch, jobs.seq)
WHERE jobs.id = ANY ($1::text[])
UNION ALL
SELECT last.body, false FROM tombstones CROSS JOIN LATERAL (
    SELECT body FROM events WHERE events.job = tombstones.job ORDER BY epoch DESC, seq DESC LIMIT 1
) AS last
WHERE tombstones.job = ANY ($1::text[])
"""


class Newest:
    """Answers from the event log. A job that ended before a restore is told in the new epoch once somebody asks: they
    may have heard of it in the lost time, and would take an event of the old epoch for an older one."""

    def __init__(self, database: Database, resets: Resets) -> None:
        self._database = database
        self._resets = resets

    async def asked(self, request: bytes) -> bytes:
        """`NewestAsked` -> `NewestAnswer`."""
        asked = NewestAsked.model_validate_json(request)
        if len(asked.jobs) > _ASKED_AT_MOST:
            raise ValueError(f"{len(asked.jobs)} jobs in one query; ask for at most {_ASKED_AT_MOST}")
        rows = await self._database.fetch(NEWEST, list(asked.jobs))
        if any(row["behind"] for row in rows):
            await self._resets.catch_up(asked.jobs)
            rows = await self._database.fetch(NEWEST, list(asked.jobs))
        return NewestAnswer(events=tuple(bytes(row["body"]).decode() for row in rows)).model_dump_json().encode()
