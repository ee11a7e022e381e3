"""The launcher's SQL. Whoever changes rows locks them first, in the order of their keys."""

from collections.abc import Mapping
from typing import Final

TYPES: Final[Mapping[str, str]] = {
    "job": "text",
    "attempt": "integer",
    "tenant": "text",
    "epoch": "integer",
    "seq": "bigint",
    "state": "text",
    "submission": "text",
    "cluster": "text",
    "ref": "text",
    "directory": "text",
    "spec_digest": "text",
    "gpus": "integer",
    "time_limit_seconds": "integer",
    "resumed": "boolean",
    "workstation": "boolean",
    "next_at": "timestamptz",
    "owner": "text",
    "token": "text",
    "deadline": "timestamptz",
    "asked": "boolean",
    "tries": "integer",
    "waits_for": "text",
    "grace_seconds": "double precision",
    "stop_signal": "integer",
    "pausing": "boolean",
    "stop_asked_at": "timestamptz",
    "stop_asked_grace": "double precision",
    "accepted_n": "bigint",
    "accepted_at": "timestamptz",
    "begun_at": "timestamptz",
    "refused_reason": "text",
    "refused_message": "text",
    "sealed_n": "bigint",
    "sealed_at": "timestamptz",
    "ran": "boolean",
    "witnessed": "boolean",
    "released": "boolean",
    "answers": "integer",
}
FIXED: Final = (
    "job",
    "attempt",
    "tenant",
    "submission",
    "cluster",
    "spec_digest",
    "gpus",
    "time_limit_seconds",
    "resumed",
    "workstation",
)
CHANGING: Final = tuple(name for name in TYPES if name not in FIXED)

ALL: Final = ", ".join(TYPES)
GIVEN: Final = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(TYPES.values(), start=1))
_GIVEN_SECOND: Final = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(TYPES.values(), len(TYPES) + 1))

# `guard` changes with every write to a row.
READ_JOBS: Final = f"""
SELECT {ALL}, xmin::text::bigint AS guard FROM launches WHERE job = ANY ($1::text[]) ORDER BY job, attempt
"""
LOCK_JOBS: Final = f"SELECT {ALL} FROM launches WHERE job = ANY ($1::text[]) ORDER BY job, attempt FOR UPDATE"
# With a fact version for each, taken while the row is locked; one that is not used leaves a gap, which is no matter.
LOCK_ROWS: Final = f"""
WITH held AS (
    SELECT {ALL} FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
    ORDER BY job, attempt FOR UPDATE OF launches
)
SELECT {ALL}, nextval('fact_versions') AS version FROM held
"""
INSERT: Final = f"""
INSERT INTO launches ({ALL}) SELECT {ALL} FROM unnest({GIVEN}) AS given ({ALL})
ON CONFLICT (job, attempt) DO NOTHING RETURNING job, attempt
"""
WRITE: Final = f"""
UPDATE launches SET {", ".join(f"{name} = given.{name}" for name in CHANGING)}
FROM unnest({GIVEN}) AS given ({ALL})
WHERE launches.job = given.job AND launches.attempt = given.attempt
"""
# Both in one statement and without a lock held before it: rows that are no more as they were read stay as they are.
APPLY: Final = f"""
WITH begun AS (
    INSERT INTO launches ({ALL}) SELECT {ALL} FROM unnest({GIVEN}) AS given ({ALL})
    ON CONFLICT (job, attempt) DO NOTHING RETURNING job, attempt
), held AS (
    SELECT job, attempt, given.guard FROM launches
    JOIN unnest(${len(TYPES) + 1}::text[], ${len(TYPES) + 2}::integer[], ${2 * len(TYPES) + 1}::bigint[])
         AS given (job, attempt, guard) USING (job, attempt)
    ORDER BY job, attempt FOR UPDATE OF launches
), changed AS (
    UPDATE launches SET {", ".join(f"{name} = given.{name}" for name in CHANGING)}
    FROM unnest({_GIVEN_SECOND}) AS given ({ALL}) JOIN held USING (job, attempt)
    WHERE launches.job = given.job AND launches.attempt = given.attempt AND launches.xmin::text::bigint = held.guard
    RETURNING launches.job, launches.attempt
)
SELECT job, attempt FROM begun UNION ALL SELECT job, attempt FROM changed
"""

# Lease what is to be launched now: the oldest first, what another replica holds is left to it.
CLAIM_LAUNCHES: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches WHERE state = 'intent' AND cluster = $6 AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET state = 'submitting', owner = $3, token = $4, deadline = $5
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in TYPES)}
"""
# What somebody began to hand over and never finished: `asked` stays, so that the backend is asked what it has first.
TAKE_OVER: Final = """
WITH left_over AS (
    SELECT job, attempt FROM launches WHERE state = 'submitting' AND (deadline < $1 OR owner = $2)
    FOR UPDATE SKIP LOCKED
)
UPDATE launches SET state = 'intent', asked = true, owner = NULL, token = NULL, deadline = NULL, next_at = $1
FROM left_over WHERE launches.job = left_over.job AND launches.attempt = left_over.attempt
"""
# Nobody claims these: the file of clusters names theirs no more. Told of each once.
STRAND: Final = """
WITH stranded AS (
    SELECT job, attempt FROM launches
    WHERE state IN ('intent', 'revoking') AND cluster <> ALL ($1::text[])
      AND waits_for IS DISTINCT FROM 'TIDEGATE_CLUSTERS names no cluster ' || cluster
    ORDER BY job, attempt FOR UPDATE SKIP LOCKED
), told AS (
    UPDATE launches SET waits_for = 'TIDEGATE_CLUSTERS names no cluster ' || cluster
    FROM stranded WHERE launches.job = stranded.job AND launches.attempt = stranded.attempt
    RETURNING cluster
)
SELECT cluster, count(*) FROM told GROUP BY cluster ORDER BY cluster
"""
# Endings and releases are safe to work on twice: a claim only keeps others away for a while.
CLAIM_ENDINGS: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches WHERE state = 'revoking' AND cluster = $5 AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET next_at = $3, owner = $4
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in TYPES)}
"""
RESUME_ENDINGS: Final = "UPDATE launches SET next_at = $1 WHERE state = 'revoking' AND owner = $2"
CLAIM_RELEASES: Final = f"""
WITH due AS (
    SELECT job, attempt FROM launches
    WHERE state = 'sealed' AND cluster = $4 AND witnessed AND NOT released AND next_at <= $1
    ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE launches SET next_at = $3
FROM due WHERE launches.job = due.job AND launches.attempt = due.attempt
RETURNING {", ".join(f"launches.{name}" for name in TYPES)}
"""
RELEASED: Final = """
WITH gone AS (
    SELECT job, attempt FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
    WHERE state = 'sealed' ORDER BY job, attempt FOR UPDATE OF launches
)
UPDATE launches SET released = true FROM gone WHERE launches.job = gone.job AND launches.attempt = gone.attempt
"""
SEALED_AMONG: Final = f"""
SELECT {ALL} FROM launches JOIN unnest($1::text[], $2::integer[]) AS key (job, attempt) USING (job, attempt)
WHERE state = 'sealed'
"""

OPEN_SINCE: Final = """
SELECT DISTINCT job FROM launches
WHERE state <> 'sealed' AND job > $1 AND coalesce(accepted_at, next_at) < $2 ORDER BY job LIMIT $3
"""
