"""What a tenant has stored, specs and snapshots, goes when the last job that names it is deleted; a snapshot that no
job has named goes a day after it was sent or asked for.

A blob has a name of its own for each upload. It is on the list of removals until it is remembered as a snapshot, and
once that is forgotten: whoever is late with removing it takes away what nobody names. No transaction waits for the blob
store.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from obstore import delete_async, head_async
from obstore.exceptions import NotFoundError
from obstore.store import ObjectStore

from shared.runtime.database import Database, Tx
from shared.runtime.logs import Log

UPLOAD_HOURS: Final = 24
UNNAMED_HOURS: Final = 24
_AT_ONCE: Final = 100
_PATIENCE_SECONDS: Final = 30.0

# Held to the commit: jobs that name what is stored are made by many at once, what nobody names is removed by one alone.
# The statements after it see what was committed before they got it.
_LOCK: Final = "(hashtextextended('tidegate.api.stored ' || $1, 0))"
SHARE: Final = f"SELECT pg_advisory_xact_lock_shared{_LOCK}"
ALONE: Final = f"SELECT pg_advisory_xact_lock{_LOCK}"

SNAPSHOTS: Final = "SELECT digest FROM snapshots WHERE tenant = $1 AND digest = ANY ($2::text[])"

# The blob's name is that of the upload; before uploads had one, it was made of the digest alone.
NAME: Final = "coalesce(snapshots.key, snapshots.tenant || '/snapshots/' || substr(snapshots.digest, 8) || '.tar.gz')"
A_JOB_NAMES_IT: Final = """EXISTS (
    SELECT FROM specs AS other JOIN jobs ON (jobs.tenant, jobs.spec_digest) = (other.tenant, other.digest)
    WHERE other.tenant = snapshots.tenant AND other.spec ->> 'snapshot' = snapshots.digest
)"""
UNUSED_SNAPSHOT: Final = f"""
WITH unused AS (
    DELETE FROM snapshots USING specs AS spec
    WHERE spec.tenant = $1 AND spec.digest = $2
        AND snapshots.tenant = $1 AND snapshots.digest = spec.spec ->> 'snapshot' AND NOT {A_JOB_NAMES_IT}
    RETURNING {NAME} AS key
)
INSERT INTO removals (key, due_at, taken) SELECT key, now(), true FROM unused RETURNING key
"""
UNUSED_SPEC: Final = """
DELETE FROM specs WHERE tenant = $1 AND digest = $2
    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.tenant = $1 AND jobs.spec_digest = $2)
"""

# What comes in is on the list until it is remembered; who forgets it for a day has lost it.
BEGIN: Final = """
INSERT INTO removals (key, due_at, taken)
SELECT key, now() + make_interval(hours => $2), false FROM unnest($1::text[]) AS new (key)
"""
OFF_THE_LIST: Final = "DELETE FROM removals WHERE key = $1 AND NOT taken RETURNING 1"
# In the place of one whose blob is gone, $5: a restore of the database has brought back its row.
REMEMBER: Final = f"""
INSERT INTO snapshots (tenant, digest, size_bytes, key) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, digest) DO UPDATE SET key = excluded.key, size_bytes = excluded.size_bytes, stored_at = now()
WHERE {NAME} = $5 RETURNING 1
"""
NAMED: Final = f"SELECT {NAME} FROM snapshots WHERE tenant = $1 AND digest = $2"
# Who asks is about to name it. Not at each question, as that would be a write.
ASKED_FOR: Final = """
UPDATE snapshots SET stored_at = now()
WHERE tenant = $1 AND digest = $2 AND stored_at < now() - interval '1 hour'
"""
UNNAMED: Final = f"stored_at < now() - make_interval(hours => $1) AND NOT {A_JOB_NAMES_IT}"
WITH_UNNAMED: Final = f"SELECT DISTINCT tenant FROM snapshots WHERE {UNNAMED}"
FORGET_UNNAMED: Final = f"""
WITH unnamed AS (DELETE FROM snapshots WHERE tenant = $2 AND {UNNAMED} RETURNING {NAME} AS key)
INSERT INTO removals (key, due_at, taken) SELECT key, now(), true FROM unnamed RETURNING key
"""
TAKE: Final = """
UPDATE removals SET taken = true, due_at = now() + make_interval(secs => $3)
WHERE key IN (
    SELECT key FROM removals WHERE CASE cardinality($1::text[]) WHEN 0 THEN due_at <= now() ELSE key = ANY ($1) END
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING key
"""
DONE: Final = "DELETE FROM removals WHERE key = ANY ($1::text[])"


async def keep_what_is_stored(tx: Tx, tenant: str) -> None:
    """Until the commit nothing that the tenant has stored is removed. Asked after the locks of jobs' rows."""
    await tx.execute(SHARE, tenant)


async def release(tx: Tx, tenant: str, spec_digest: str) -> str | None:
    """Forget a spec, and the snapshot that it names, where no job names them any more; the name of the snapshot's blob,
    which is on the list of removals. Asked once the job's row is gone."""
    await tx.execute(ALONE, tenant)
    key = await tx.fetchval(UNUSED_SNAPSHOT, tenant, spec_digest)
    await tx.execute(UNUSED_SPEC, tenant, spec_digest)
    return None if key is None else str(key)


async def forget_unnamed(tx: Tx, tenant: str) -> int:
    """Forget the tenant's snapshots that no job has named for a day, whose blobs are on the list of removals then; how
    many. Who needs one of them at this moment commits before, or comes after and is told to send it again."""
    await tx.execute(ALONE, tenant)
    return len(await tx.fetch(FORGET_UNNAMED, UNNAMED_HOURS, tenant))


@dataclass(frozen=True, slots=True)
class Upload:
    """The names of a blob while it comes in, and once it is whole and right; `instead_of`: of one that is gone."""

    incoming: str
    whole: str
    instead_of: str | None = None


class Stored:
    """Blobs and the list of their removals."""

    def __init__(self, database: Database, blobs: ObjectStore, log: Log) -> None:
        self._database = database
        self._blobs = blobs
        self._log = log

    async def has(self, tenant: str, digest: str) -> bool:
        """Whether the tenant has stored it and it is still there; where the blob store does not say, it is. It stays
        for most of a day."""
        key = await self._asked_for(tenant, digest)
        return key is not None and await self._is_there(key)

    async def begin(self, tenant: str, digest: str) -> Upload | None:
        """Names for a blob about to come in, which is removed in a day unless it is remembered; None where the tenant
        has it already."""
        key = await self._asked_for(tenant, digest)
        if key is not None and await self._is_there(key):
            return None
        id_ = uuid.uuid4().hex
        name = f"{tenant}/snapshots/{digest.removeprefix('sha256:')}/{id_}.tar.gz"
        upload = Upload(f"{tenant}/incoming/{id_}", name, key)
        await self._database.execute(BEGIN, [upload.incoming, upload.whole], UPLOAD_HOURS)
        return upload

    async def remember(self, tenant: str, digest: str, size: int, upload: Upload) -> bool:
        """Know the snapshot by its digest from now on; False where it took more than a day. Another upload that came
        first is kept, and this one stays on the list."""
        async with self._database.transaction() as tx:
            if not await tx.fetchval(OFF_THE_LIST, upload.whole):
                return False
            if not await tx.fetchval(REMEMBER, tenant, digest, size, upload.whole, upload.instead_of):
                await tx.execute(BEGIN, [upload.whole], 0)
            await tx.execute(DONE, [upload.incoming])
        return True

    async def forget(self) -> int:
        """Forget the snapshots that no job has named for a day; how many."""
        forgotten = 0
        for row in await self._database.fetch(WITH_UNNAMED, UNNAMED_HOURS):
            async with self._database.transaction() as tx:
                forgotten += await forget_unnamed(tx, row["tenant"])
        return forgotten

    async def remove(self, keys: Sequence[str] = ()) -> int:
        """Remove these blobs of the list, or those that are due; how many. What fails stays on it."""
        taken = [row["key"] for row in await self._database.fetch(TAKE, list(keys), _AT_ONCE, _PATIENCE_SECONDS)]
        done = [key for key in taken if await self._removed(key)]
        if done:
            await self._database.execute(DONE, done)
        return len(done)

    async def remove_soon(self, keys: Sequence[str]) -> None:
        """Remove these now if that works at once; else the next sweep does."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self.remove(keys)
        except Exception as error:  # the deletion is committed: whatever this met, its answer stands
            self._log.warning("blobs are left to the next sweep", count=len(keys), error=repr(error))

    async def _asked_for(self, tenant: str, digest: str) -> str | None:
        """The name of the snapshot's blob, which is asked for now."""
        await self._database.execute(ASKED_FOR, tenant, digest)
        key: str | None = await self._database.fetchval(NAMED, tenant, digest)
        return key

    async def _is_there(self, key: str) -> bool:
        try:
            await head_async(self._blobs, key)
        except (NotFoundError, FileNotFoundError):
            return False
        except Exception as error:
            self._log.warning("the blob store does not say whether a blob is there", key=key, error=str(error))
        return True

    async def _removed(self, key: str) -> bool:
        try:
            await delete_async(self._blobs, key)
        except (NotFoundError, FileNotFoundError):
            pass
        except Exception as error:
            self._log.warning("a blob could not be removed", key=key, error=str(error))
            return False
        return True
