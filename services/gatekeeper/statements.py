"""The gatekeeper's SQL: each statement takes a whole batch, whatever its size."""

from typing import Final

from services.gatekeeper.room import EVERYBODY

# The ceiling is part of every admission's draw, so its lock makes admissions take turns, here and in other replicas.
LOCK_QUOTAS: Final = "SELECT tenant, slots, gpus FROM quotas WHERE tenant = ANY ($1) ORDER BY tenant FOR UPDATE"
POOLS: Final = "SELECT cluster, coretype, region, gpus, slots, total_gpus, at, reachable FROM pools"
LOCK_POOLS: Final = f"{POOLS} ORDER BY cluster, coretype FOR UPDATE"

# What open reservations hold: as many rows as there are tenants with running jobs, times pools.
SUMS: Final = """
SELECT tenant, cluster, coretype,
       coalesce(sum(gpus) FILTER (WHERE gpus_ended_at IS NULL), 0) AS gpus,
       count(*) FILTER (WHERE slot_ended_at IS NULL) AS slots
FROM reservations WHERE gpus_ended_at IS NULL OR slot_ended_at IS NULL
GROUP BY tenant, cluster, coretype
"""

MAKE_ATTEMPTS: Final = """
INSERT INTO attempts (job, tenant, attempt, epoch, seq)
SELECT job, tenant, 0, 0, 0 FROM unnest($1::text[], $2::text[]) AS new (job, tenant) ORDER BY job
ON CONFLICT DO NOTHING
"""
LOCK_ATTEMPTS: Final = "SELECT job, attempt, epoch, seq FROM attempts WHERE job = ANY ($1) ORDER BY job FOR UPDATE"
SET_ATTEMPTS: Final = """
UPDATE attempts SET attempt = new.attempt, epoch = new.epoch, seq = new.seq, ended_at = new.ended_at
FROM unnest($1::text[], $2::int[], $3::int[], $4::bigint[], $5::timestamptz[])
    AS new (job, attempt, epoch, seq, ended_at)
WHERE attempts.job = new.job
"""

_LINE: Final = """
job, attempt, tenant, priority, queued_at, gpus, coretype, region, hold, upstream, cooldown_until, waits_for,
told, told_n, told_at, gates
"""
WAITING: Final = f"SELECT {_LINE} FROM waiting WHERE job = ANY ($1)"

# The first of each place in the line that are small enough. A row that another replica holds is being settled there.
HEADS: Final = f"""
SELECT head.* FROM unnest($1::text[], $2::int[], $3::int[]) AS place (key, gpus, most)
CROSS JOIN LATERAL (
    SELECT {_LINE} FROM waiting
    WHERE waits_for = place.key AND gpus <= place.gpus AND job <> ALL ($4::text[])
    ORDER BY priority DESC, queued_at, job LIMIT place.most FOR UPDATE SKIP LOCKED
) AS head
"""
# Whoever has waited so long that GPUs are kept for them: the first of each place.
AGED: Final = f"""
SELECT first.* FROM unnest($1::text[]) AS place (key)
CROSS JOIN LATERAL (
    SELECT {_LINE} FROM waiting
    WHERE waits_for = place.key AND gpus > 0 AND queued_at <= $2 AND job <> ALL ($3::text[])
    ORDER BY priority DESC, queued_at, job LIMIT 1 FOR UPDATE SKIP LOCKED
) AS first
"""
COOLED: Final = f"""
SELECT {_LINE} FROM waiting WHERE waits_for = 'time' AND cooldown_until <= $1
ORDER BY cooldown_until LIMIT $2 FOR UPDATE SKIP LOCKED
"""
# Whoever waits at a place and was told a reason of that kind, or of any other: hopping over the index both times.
TOLD: Final = f"""
SELECT {_LINE} FROM waiting WHERE waits_for = ANY ($1) AND told = $2 LIMIT $3 FOR UPDATE SKIP LOCKED
"""
TOLD_OTHERWISE: Final = f"""
SELECT {_LINE} FROM waiting WHERE waits_for = ANY ($1) AND (told < $2 OR told > $2) LIMIT $3 FOR UPDATE SKIP LOCKED
"""
MISTOLD_BY_LIMIT: Final = f"""
SELECT {_LINE} FROM waiting
WHERE ($1 = '{EVERYBODY}' OR tenant = $1) AND waits_for NOT IN ('event', 'time') AND (gpus > $2) <> (told = $3)
LIMIT $4 FOR UPDATE SKIP LOCKED
"""
# Each place in the line where somebody stands, hopping over the index instead of reading the line.
PLACES: Final = """
WITH RECURSIVE place (key) AS (
    SELECT min(waits_for) FROM waiting
    UNION ALL
    SELECT (SELECT min(waits_for) FROM waiting WHERE waits_for > place.key) FROM place WHERE place.key IS NOT NULL
)
SELECT key FROM place WHERE key IS NOT NULL
"""

STAND: Final = f"""
INSERT INTO waiting ({_LINE})
SELECT * FROM unnest(
    $1::text[], $2::int[], $3::text[], $4::int[], $5::timestamptz[], $6::int[], $7::text[], $8::text[], $9::jsonb[],
    $10::text[], $11::timestamptz[], $12::text[], $13::text[], $14::bigint[], $15::timestamptz[], $16::jsonb[])
ON CONFLICT (job) DO UPDATE SET
    attempt = excluded.attempt, priority = excluded.priority, queued_at = excluded.queued_at, gpus = excluded.gpus,
    coretype = excluded.coretype, region = excluded.region, hold = excluded.hold, upstream = excluded.upstream,
    cooldown_until = excluded.cooldown_until, waits_for = excluded.waits_for, told = excluded.told,
    told_n = excluded.told_n, told_at = excluded.told_at, gates = excluded.gates
"""
LEAVE: Final = "DELETE FROM waiting WHERE job = ANY ($1)"

# Attempts that hold all they were given, and nothing here says otherwise.
UNMOVED: Final = """
SELECT seen.job FROM unnest($1::text[], $2::int[], $3::bigint[], $4::text[]) AS seen (job, attempt, admission, cluster)
JOIN reservations AS own ON own.job = seen.job AND own.attempt = seen.attempt AND own.slot_ended_at IS NULL
WHERE seen.admission IN (0, own.admission) AND coalesce(seen.cluster, own.cluster) = own.cluster
  AND NOT EXISTS (SELECT FROM waiting WHERE waiting.job = seen.job)
  AND NOT EXISTS (
    SELECT FROM reservations AS older WHERE older.job = seen.job AND older.attempt < seen.attempt
    AND (older.gpus_ended_at IS NULL OR older.slot_ended_at IS NULL))
"""

_RESERVATION: Final = """
job, attempt, admission, tenant, cluster, coretype, gpus, opened_at, gpus_ended_at IS NULL AS holds_gpus,
slot_ended_at IS NULL AS holds_slot
"""
OPEN: Final = f"""
SELECT {_RESERVATION} FROM reservations
WHERE job = ANY ($1) AND (gpus_ended_at IS NULL OR slot_ended_at IS NULL) ORDER BY job, attempt, admission
"""
# Jobs in the order of their ids, so that a round of questions reaches all of them.
OPEN_SINCE: Final = """
SELECT DISTINCT job FROM reservations
WHERE (gpus_ended_at IS NULL OR slot_ended_at IS NULL) AND job > $1 AND opened_at <= $2 ORDER BY job LIMIT $3
"""
# A job has one open slot at most, by an index: whoever is second books nothing.
BOOK: Final = """
INSERT INTO reservations
    (job, attempt, admission, tenant, cluster, coretype, gpus, opened_at, gpus_ended_at, slot_ended_at)
SELECT * FROM unnest(
    $1::text[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[], $8::timestamptz[],
    $9::timestamptz[], $10::timestamptz[])
ON CONFLICT DO NOTHING RETURNING job
"""
END: Final = """
UPDATE reservations SET
    gpus_ended_at = coalesce(gpus_ended_at, CASE WHEN ended.gpus THEN $6::timestamptz END),
    slot_ended_at = coalesce(slot_ended_at, CASE WHEN ended.slot THEN $6::timestamptz END),
    ended_why = ended.why
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bool[], $5::bool[], $7::text[])
    AS ended (job, attempt, admission, gpus, slot, why)
WHERE (reservations.job, reservations.attempt, reservations.admission) = (ended.job, ended.attempt, ended.admission)
"""
MOVE: Final = """
UPDATE reservations SET cluster = moved.cluster
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::text[]) AS moved (job, attempt, admission, cluster)
WHERE (reservations.job, reservations.attempt, reservations.admission) = (moved.job, moved.attempt, moved.admission)
"""
NUMBERS: Final = "SELECT nextval('fact_versions') FROM generate_series(1, $1)"

SET_POOLS: Final = """
INSERT INTO pools (cluster, coretype, region, gpus, slots, total_gpus, at, reachable)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::int[], $7::timestamptz[], $8::bool[])
ON CONFLICT (cluster, coretype) DO UPDATE SET
    region = excluded.region,
    gpus = CASE WHEN excluded.reachable THEN excluded.gpus ELSE pools.gpus END,
    slots = CASE WHEN excluded.reachable THEN excluded.slots ELSE pools.slots END,
    total_gpus = CASE WHEN excluded.reachable THEN excluded.total_gpus ELSE pools.total_gpus END,
    at = CASE WHEN excluded.reachable OR pools.reachable THEN excluded.at ELSE pools.at END,
    reachable = excluded.reachable
WHERE pools.at <= excluded.at
"""

PURGE_ATTEMPTS: Final = """
DELETE FROM attempts WHERE job IN (SELECT job FROM attempts WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)
"""
PURGE_RESERVATIONS: Final = """
DELETE FROM reservations WHERE (job, attempt, admission) IN (
    SELECT job, attempt, admission FROM reservations
    WHERE slot_ended_at < $1 AND gpus_ended_at IS NOT NULL ORDER BY slot_ended_at LIMIT $2)
"""
