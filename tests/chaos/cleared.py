"""That nothing is open once every job is settled, and that nothing is left once every job is deleted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from services.stager.removal import is_fence
from shared.backends.local import layout
from shared.backends.local.names import parse_submission_name
from tests.chaos.evidence import DEAD, OPEN, UNSENT
from tests.chaos.handled import Handled
from tests.chaos.stand import Stand

_MOVING: Final = """
SELECT id, state FROM api.jobs WHERE id = ANY($1) AND state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED', 'PAUSED')
"""
_STATES: Final = """
SELECT id, state, epoch, seq, (record ->> 'attempt')::int AS attempt, record ->> 'desired_state' AS desired,
       record -> 'hold' ->> 'by_admin' AS hold, record ->> 'end_reason' AS end_reason,
       record -> 'workstation' ->> 'snoozed_until' AS snoozed_until
FROM api.jobs WHERE id = ANY($1)
"""
_EVENTS: Final = "SELECT job, type FROM api.events WHERE job = ANY($1) AND sent_at IS NULL"
_ROWS: Final = """
SELECT 'job' AS what, id AS name FROM api.jobs WHERE id = ANY($1)
UNION ALL SELECT 'pipeline', id FROM api.pipelines WHERE id = ANY($2)
UNION ALL SELECT 'spec', digest FROM api.specs
UNION ALL SELECT 'snapshot', digest FROM api.snapshots
UNION ALL SELECT 'blob to remove', key FROM api.removals
UNION ALL SELECT 'fact of nobody', job FROM api.orphans WHERE job = ANY($1)
UNION ALL SELECT 'staging that is not given up', job FROM stager.staging WHERE job = ANY($1) AND deleted_at IS NULL
UNION ALL SELECT 'files of a deleted job', job FROM stager.deletions WHERE job = ANY($1) AND cleared_at IS NULL
"""
_GIVEN_UP: Final = """
SELECT job FROM api.tombstones WHERE job = ANY($1)
"""
_SETTLED: Final = ("SUCCEEDED", "FAILED", "STOPPED", "PAUSED")


def states(stand: Stand, handled: Handled) -> dict[str, Any]:
    """The rows of the jobs that were not deleted."""
    (rows,) = stand.rows((_STATES, list(handled.made)))
    return {row["id"]: row for row in rows}


def alive_too_long(stand: Stand, handled: Handled) -> Iterator[str]:
    """Processes of jobs that are paused, ended or deleted, and of attempts that are over."""
    before, processes, after = states(stand, handled), list(handled.processes()), states(stand, handled)
    for job, attempt, pid in processes:
        first, second = before.get(job), after.get(job)
        if first is None or (attempt < first["attempt"]):
            yield f"process {pid} of attempt {attempt} of {job} lives, and the job is {first}"
        elif first["state"] in _SETTLED and second is not None and second["attempt"] == attempt:
            yield f"process {pid} of attempt {attempt} of {job} lives, and the job is {first['state']}"


def still_open(stand: Stand, handled: Handled) -> list[str]:
    """What is not over though no job moves: of a stack at rest this is nothing."""
    jobs = list(handled.made)
    moving, opened, events, unsent = stand.rows((_MOVING, jobs), (OPEN, jobs), (_EVENTS, jobs), (UNSENT,))
    found = [f"{row['id']} is {row['state']}" for row in moving]
    found += [f"an open {row['what']} of {row['job']}: {row['detail']}" for row in opened]
    found += [f"an event {row['type']} of {row['job']} is not sent" for row in events]
    found += [f"{row['unsent']} unsent messages of {row['service']}" for row in unsent if row["unsent"]]
    found += [f"process {pid} of attempt {attempt} of {job}" for job, attempt, pid in handled.processes()]
    for file in (stand.place.local / layout.OPEN).glob("*.json"):
        split = layout.split_record_name(file.name)
        parsed = None if split is None else parse_submission_name(split[0])
        if parsed is not None and parsed[1] in handled.made:
            found.append(f"{file.name} is among the open records")
    return found


def dead_letters(stand: Stand) -> list[str]:
    """Messages that nobody could handle."""
    (rows,) = stand.rows((DEAD,))
    return [f"a dead letter of {row['service']}: {row['subject']}: {row['error']}" for row in rows]


def left_behind(stand: Stand, handled: Handled) -> list[str]:
    """What is left of jobs that were all deleted, on a stack that has no other ones: but for what fences their attempts
    and the rows of money and of history, this is to be nothing."""
    jobs = list(handled.made)
    rows, tombstones = stand.rows((_ROWS, jobs, list(handled.pipelines)), (_GIVEN_UP, jobs))
    found = [f"a {row['what']}: {row['name']}" for row in rows]
    found += [f"no tombstone of {job}" for job in sorted(set(jobs) - {row["job"] for row in tombstones})]
    found += [f"the blob {name}" for name in _files(stand.place.blobs)]
    for name in _files(stand.place.local / layout.WORK):
        _, job, *_, last = name.split("/")
        if job in handled.made and not is_fence(last):
            found.append(f"the file {name}")
    marks = (stand.place.local / "staging").glob("*")
    found += [f"the mark {file.name}" for file in marks if file.name.split(".")[1] in handled.made]
    return found


def _files(folder: Path) -> Iterator[str]:
    """The names of all files below, while others remove them."""
    for place, _, names in os.walk(folder):
        yield from (os.path.relpath(f"{place}/{name}", folder) for name in names)
