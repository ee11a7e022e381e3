"""Pipelines as they are read and shown: in short what the records of their steps say."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.api.permitted import NOTHING_AROUND, Around, pipeline_actions
from services.api.pipelines import NewPipeline
from services.api.reads import SNAPSHOT, SPEC, STORED
from shared.lifecycle.pipeline import pipeline_word
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import TERMINAL, State
from shared.runtime.database import Database

# Pipelines of a tenant with the records of their steps in order, and what is true around those; a page of them newest
# first, or one.
_READ: Final = """
SELECT page.id, page.project, page.user_name, page.name, page.submitted_at, page.gone,
    array_agg(job.record::text ORDER BY job.id) AS steps, array_agg({snapshot} ORDER BY job.id) AS snapshots,
    array_agg({stored} ORDER BY job.id) AS stored
FROM (SELECT * FROM pipelines WHERE tenant = $1 AND {which} ORDER BY id DESC LIMIT $3) AS page
JOIN jobs AS job ON job.pipeline = page.id {spec}
GROUP BY page.id, page.project, page.user_name, page.name, page.submitted_at, page.gone ORDER BY page.id DESC
"""
PAGE: Final = _READ.format(which="id < $2", snapshot=SNAPSHOT, stored=STORED, spec=SPEC)
ONE: Final = _READ.format(which="id = $2", snapshot=SNAPSHOT, stored=STORED, spec=SPEC)

_AFTER_ALL_IDS: Final = "q"


@dataclass(frozen=True, slots=True)
class FoundPipeline:
    """A pipeline with the records of its steps, what is true around each, and what was shown last of deleted ones."""

    head: NewPipeline
    steps: Sequence[JobRecord]
    around: Mapping[str, Around]
    gone: Sequence[dict[str, Any]] = ()


class Pipelines:
    """Queries of one tenant's pipelines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def one(self, tenant: str, pipeline: str) -> FoundPipeline | None:
        """The tenant's pipeline, or None."""
        rows = await self._database.fetch(ONE, tenant, pipeline, 1)
        return _found(rows[0]) if rows else None

    async def page(self, tenant: str, *, before: str | None, limit: int) -> list[FoundPipeline]:
        """The pipelines before the id `before`, newest first."""
        rows = await self._database.fetch(PAGE, tenant, before or _AFTER_ALL_IDS, limit)
        found = []
        for row in rows:
            found.append(_found(row))
            await asyncio.sleep(0)  # a page may hold 2,000 records
        return found


def _found(row: Any) -> FoundPipeline:
    head = NewPipeline(row["id"], row["project"], row["user_name"], row["name"], row["submitted_at"])
    steps = [JobRecord.model_validate_json(step) for step in row["steps"]]
    lost = tuple((step["index"], step["name"]) for step in row["gone"])
    around = {
        step.id: Around(snapshot, stored, deleted_steps=lost)
        for step, snapshot, stored in zip(steps, row["snapshots"], row["stored"], strict=True)
    }
    return FoundPipeline(head, steps, around, row["gone"])


def new_pipeline(name: str, steps: Sequence[JobRecord]) -> FoundPipeline:
    """One just submitted."""
    first = steps[0]
    assert first.pipeline is not None, "a step knows its pipeline"
    head = NewPipeline(first.pipeline.id, first.project, first.user, name, first.submitted_at)
    return FoundPipeline(head, steps, {step.id: NOTHING_AROUND for step in steps})


def pipeline_view(tenant: str, found: FoundPipeline, now: datetime, *, is_admin: bool) -> dict[str, Any]:
    """What `GET /v1/pipelines/{id}` returns. The word counts deleted steps as they were shown last."""
    head = found.head
    shown = [step_view(step.model_dump(mode="json", include=_IN_SHORT)) for step in found.steps]
    steps = sorted([*shown, *found.gone], key=lambda step: int(step["index"]))
    answers = pipeline_actions(found.steps, found.around, now, is_admin=is_admin)
    started = [at for step in steps if (at := step["started_at"]) is not None]
    ended = all(step["state"] in TERMINAL for step in steps)
    return {
        "id": head.id,
        "tenant": tenant,
        "project": head.project,
        "user": head.user,
        "name": head.name,
        "word": pipeline_word([(State(step["state"]), _end_reason(step)) for step in steps]),
        "message": _message(steps) if ended else None,
        "steps": steps,
        "actions": {name: answer.model_dump() for name, answer in answers.items()},
        "submitted_at": _time(head.submitted_at),
        "started_at": min(started, key=datetime.fromisoformat, default=None),
        "finished_at": max((step["finished_at"] for step in steps), key=datetime.fromisoformat) if ended else None,
    }


_IN_SHORT: Final = {
    *("id", "pipeline", "state", "desired_state", "stages", "end_reason", "failed_stage", "message", "hint"),
    *("started_at", "command_ended_at", "finished_at", "warnings"),
}


def step_view(record: Mapping[str, Any], deleted_at: datetime | None = None) -> dict[str, Any]:
    """A step in short, from its job's record as JSON; `deleted_at` where that is about to be deleted."""
    waiting_on = next((stage.get("waiting_on") for stage in record["stages"] if stage["status"] == "active"), None)
    return {
        "job": record["id"],
        "name": record["pipeline"]["step"],
        "index": record["pipeline"]["index"],
        "state": record["state"],
        "desired_state": record["desired_state"],
        "waiting_on": waiting_on,
        **{key: record.get(key) for key in ("end_reason", "failed_stage", "message", "hint", "started_at")},
        "command_ended_at": record.get("command_ended_at"),
        "finished_at": record.get("finished_at"),
        "warnings": record.get("warnings", []),
        "deleted_at": None if deleted_at is None else _time(deleted_at),
    }


def gone_step(record: JobRecord, at: datetime) -> dict[str, Any]:
    """What stays of a step that is deleted."""
    return step_view(record.model_dump(mode="json", include=_IN_SHORT), at)


def _message(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Why it did not succeed: the first step that did not, in its own words."""
    first = next((step for step in steps if step["state"] != State.SUCCEEDED), None)
    return None if first is None else f"step {first['name']}: {first['message']}"


def _end_reason(step: Mapping[str, Any]) -> EndReason | None:
    reason = step["end_reason"]
    return None if reason is None else EndReason(reason)


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
