"""`rpc.v1.api.specs`: the specs of a tenant's digests, for the services that act on them."""

from typing import Final

import orjson

from shared.contracts.queries import SpecsAsked
from shared.runtime.database import Database

_ANSWER_BYTES: Final = 900_000  # below the broker's max_payload of 1 MB
_ASKED_AT_MOST: Final = 1000

BY_DIGEST: Final = "SELECT digest, spec FROM specs WHERE tenant = $1 AND digest = ANY ($2::text[])"


class Specs:
    """Answers from the table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def asked(self, request: bytes) -> bytes:
        """`SpecsAsked` -> `SpecsAnswer`; an error where the answer would not fit into a message."""
        asked = SpecsAsked.model_validate_json(request)
        if len(asked.digests) > _ASKED_AT_MOST:
            raise ValueError(f"{len(asked.digests)} digests in one query; ask for at most {_ASKED_AT_MOST}")
        rows = await self._database.fetch(BY_DIGEST, asked.tenant, list(asked.digests))
        answer = orjson.dumps({"specs": {row["digest"]: row["spec"] for row in rows}})
        if len(answer) > _ANSWER_BYTES:
            raise ValueError(
                f"the {len(rows)} specs have {len(answer)} bytes, and a message holds {_ANSWER_BYTES}: ask for fewer"
            )
        return answer
