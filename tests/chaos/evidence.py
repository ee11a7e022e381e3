"""What must hold once every job of a history has ended, read from where it cannot be talked away.

The ledger that the jobs wrote, the runner's exit records, the processes of this machine, the folders, and the rows of
all slices; what a service answers counts for nothing here, but for the usage and the pipelines' words that users see.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from shared.contracts.subjects import SERVICES
from tests.chaos.load import Load
from tests.chaos.logs import what_is_wrong_with_the_logs
from tests.chaos.remains import added_up, metered_once, nothing_on_this_machine, one_staging_area
from tests.chaos.stand import Stand
from tests.chaos.verdict import Verdict
from tests.chaos.wanted import Wanted, word_of
from tests.e2e.stacks import TERMINAL

_QUIET_SECONDS: Final = 0.3

_JOBS: Final = "SELECT id, name, tenant, state, record FROM api.jobs WHERE name LIKE $1 || '-%'"
_IN_FLIGHT: Final = """
SELECT count(*) AS jobs FROM api.jobs WHERE name LIKE $1 || '-%' AND state <> ALL($2)
AND (pipeline IS NULL OR record -> 'pipeline' ->> 'upstream_done' = 'true')
"""
_EVENTS: Final = """
SELECT job, count(*) AS events, max(seq) - min(seq) + 1 AS numbered, min(seq) AS first,
       count(*) FILTER (WHERE type IN ('succeeded', 'failed', 'stopped')) AS ends,
       count(*) FILTER (WHERE sent_at IS NULL) AS unsent
FROM api.events WHERE job = ANY($1) GROUP BY job
"""
_SEGMENTS: Final = """
SELECT job, attempt, submission, restart, gpu_milliseconds, ended_at, started_at, gpus
FROM metering.segments WHERE job = ANY($1)
"""
OPEN: Final = """
SELECT 'reservation' AS what, job, ended_why AS detail FROM gatekeeper.reservations
WHERE job = ANY($1) AND (gpus_ended_at IS NULL OR slot_ended_at IS NULL)
UNION ALL SELECT 'place in the line', job, waits_for FROM gatekeeper.waiting WHERE job = ANY($1)
UNION ALL SELECT 'launch', job, state || ', released: ' || released FROM launcher.launches
WHERE job = ANY($1) AND (state <> 'sealed' OR witnessed AND NOT released)
UNION ALL SELECT 'staging', job, stage FROM stager.staging WHERE job = ANY($1) AND stage NOT IN ('sealed', 'over')
UNION ALL SELECT 'watched attempt', job, 'not over' FROM watcher.watched WHERE job = ANY($1) AND NOT over
"""
_STAGINGS: Final = "SELECT job, attempt, tenant, directory, manifest FROM stager.staging WHERE job = ANY($1)"
_TABLES: Final = (
    "api.events",
    "gatekeeper.attempts",
    "gatekeeper.reservations",
    "stager.staging",
    "launcher.launches",
    "watcher.watched",
    "watcher.sightings",
    "metering.segments",
)
_DIGEST: Final = """
SELECT md5(string_agg(row, '' ORDER BY row)) AS digest
FROM (SELECT (to_jsonb(t) - 'answers')::text AS row FROM {table} AS t WHERE {job} = ANY($1)) AS rows
"""
UNSENT: Final = " UNION ALL ".join(
    f"SELECT '{service}' AS service, count(*) AS unsent FROM {service}.outbox WHERE sent_at IS NULL"
    for service in SERVICES
    if service != "api"
)
DEAD: Final = " UNION ALL ".join(
    f"SELECT '{service}' AS service, subject, error FROM {service}.dead_letters WHERE retried_at IS NULL"
    for service in SERVICES
)


def all_end_right(
    stand: Stand, load: Load, seconds: float, *, casualties: int = 0, somebody_is_frozen: bool = False
) -> None:
    """Wait until nothing is left to be done, and fail at once when something is wrong for ever. At most so many jobs
    may be lost as had their supervisor killed; who is frozen cannot take away what it staged."""
    deadline = time.monotonic() + seconds
    while True:
        load.drive()
        verdict = judge(stand, load)
        if len(verdict.casualties) > casualties:
            verdict.wrong += [f"{job} is lost, though its supervisor lived" for job in verdict.casualties]
        if len(verdict.casualties | verdict.unrecorded) > casualties:
            verdict.left += [f"{job} ran, and the runner has no record of its end" for job in verdict.unrecorded]
        assert not verdict.wrong, f"wrong:\n  {verdict}\nin {stand.home}"
        if not verdict.left and (somebody_is_frozen or not verdict.areas):
            break
        assert time.monotonic() < deadline, f"still so after {seconds:g} s:\n  {verdict}\nin {stand.home}"
        time.sleep(_QUIET_SECONDS)
    wrong = what_is_wrong_with_the_logs(stand, load)
    assert not wrong, "wrong in the event log:\n  " + "\n  ".join(wrong)
    _shown_right(stand, load)


def _shown_right(stand: Stand, load: Load) -> None:
    """Users see what was metered, and of each pipeline the word that its steps' ends make."""
    segments, rows = stand.rows((_SEGMENTS, load.jobs), (_JOBS, load.name))
    counted = {job: milliseconds for job, milliseconds in added_up(segments).items() if milliseconds}
    assert load.usage(counted) == counted, "the usage that is shown is not what was metered"
    states = {row["id"]: row["state"] for row in rows}
    words = {pipeline: word_of([states[job] for job in steps]) for pipeline, steps in load.pipelines.items()}
    assert load.words() == words, "the words of pipelines that are shown are not what their steps came to"


def what_counts(stand: Stand, load: Load) -> list[str]:
    """A digest of every slice's rows about these jobs, less what only counts answers to questions."""
    tables = [("api.jobs", "id"), *((table, "job") for table in _TABLES)]
    queries = [(_DIGEST.format(table=table, job=job), load.jobs) for table, job in tables]
    digests = stand.rows(*queries)
    return [f"{table}: {rows[0]['digest']}" for (table, _), rows in zip(tables, digests, strict=True)]


def in_flight(stand: Stand, load: Load) -> int:
    """How many jobs have not ended and wait for no earlier step."""
    ((row,),) = stand.rows((_IN_FLIGHT, load.name, list(TERMINAL)))
    return int(row["jobs"])


def judge(stand: Stand, load: Load) -> Verdict:
    """Every invariant, once."""
    verdict = Verdict()
    jobs = load.jobs
    rows, events, segments, still_open, stagings, unsent, dead = stand.rows(
        (_JOBS, load.name),
        (_EVENTS, jobs),
        (_SEGMENTS, jobs),
        (OPEN, jobs),
        (_STAGINGS, jobs),
        (UNSENT,),
        (DEAD,),
    )
    _ran_once(load, verdict)
    _none_lost_none_made_twice(load, rows, verdict)
    ended = {row["id"]: json.loads(row["record"]) for row in rows if row["state"] in TERMINAL}
    states = {job: record["state"] for job, record in ended.items()}
    ran = load.ran()
    for job, record in ended.items():
        if job not in load.wanted:
            continue
        wanted = load.wanted[job].where_reached(states)
        if record.get("end_reason") == "lost":
            verdict.casualties.add(job)
        else:
            _ended_right(job, record, wanted, ran[f"{job} 1"], verdict)
    for row in events:
        if row["events"] != row["numbered"] or row["first"] != 1 or row["ends"] > 1:
            verdict.wrong.append(f"{row['job']} has a log with gaps or two ends: {dict(row)}")
    verdict.left += [f"{row['job']} has {row['unsent']} unsent events" for row in events if row["unsent"]]
    verdict.left += [f"{row['unsent']} unsent messages of {row['service']}" for row in unsent if row["unsent"]]
    verdict.wrong += [f"a dead letter of {row['service']}: {row['subject']}: {row['error']}" for row in dead]
    verdict.left += [f"an open {row['what']} of {row['job']}: {row['detail']}" for row in still_open]
    if len(ended) == len(load.wanted):
        metered_once(stand, load, segments, verdict)
        nothing_on_this_machine(stand, load, verdict)
        for row in stagings:
            one_staging_area(stand, load, row, verdict)
    return verdict


def _ran_once(load: Load, verdict: Verdict) -> None:
    for line, times in load.ran().items():
        job, _, attempt = line.partition(" ")
        if job not in load.wanted:
            verdict.wrong.append(f"{job} ran and was never submitted")
        elif times > 1:
            verdict.wrong.append(f"{job} ran {times} times as attempt {attempt}")
        elif attempt != "1":
            verdict.wrong.append(f"{job} ran as attempt {attempt}, and nobody asked for one")


def _none_lost_none_made_twice(load: Load, rows: list[Any], verdict: Verdict) -> None:
    found = {row["id"] for row in rows}
    verdict.wrong += [f"{job} is lost" for job in load.wanted if job not in found]
    names = Counter(row["name"] for row in rows)
    verdict.wrong += [f"{name} was made {times} times" for name, times in names.items() if times > 1]
    moving = [f"{row['id']} is {row['state']}" for row in rows if row["state"] not in TERMINAL]
    verdict.left += moving


def _ended_right(job: str, record: Mapping[str, Any], wanted: Wanted, lines: int, verdict: Verdict) -> None:
    said = f"{job} ({wanted.kind})"
    if record["state"] != wanted.state:
        verdict.wrong.append(f"{said} is {record['state']}: {record.get('message')}")
        return
    if wanted.code is not None and record["exit"].get("code") != wanted.code:
        verdict.wrong.append(f"{said} has exit {record['exit']}, and {wanted.code} is right")
    if wanted.reason is not None and (record["end_reason"], lines) != (wanted.reason, 0):
        verdict.wrong.append(f"{said} ended as {record['end_reason']} after {lines} runs: {record.get('message')}")
    if lines == 0 and wanted.must_run:
        verdict.wrong.append(f"{said} is {record['state']} and never ran")
    outputs = record["attempts"][-1].get("outputs") or {}
    if (outputs.get("files") or 0) != wanted.files:
        verdict.wrong.append(f"{said} has outputs {outputs}, and {wanted.files} is right")
