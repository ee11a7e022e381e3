"""Pipelines as they are read and shown: in short what the records of their steps say."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from services.api.pipelines import NewPipeline
from shared.lifecycle.pipeline import PipelineWord, pipeline_word
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import TERMINAL, Desired, State
from shared.runtime.database import Database

# Pipelines of a tenant with the records of their steps in order; a page of them newest first, or one.
_READ: Final = """
SELECT page.id, page.project, page.user_name, page.name, page.submitted_at, page.gone,
    array_agg((record - '{{attempts,earlier,findings,closed_gates}}'::text[])::text ORDER BY jobs.id) AS steps
FROM (SELECT * FROM pipelines WHERE tenant = $1 AND {which} ORDER BY id DESC LIMIT $3) AS page
JOIN jobs ON jobs.pipeline = page.id
GROUP BY page.id, page.project, page.user_name, page.name, page.submitted_at, page.gone ORDER BY page.id DESC
"""
PAGE: Final = _READ.format(which="id < $2")
ONE: Final = _READ.format(which="id = $2")

_AFTER_ALL_IDS: Final = "q"
_ENDED: Final = {
    PipelineWord.SUCCEEDED: "it succeeded already",
    PipelineWord.PARTIAL: "it has ended already: a step did not succeed",
    PipelineWord.FAILED: "it failed already",
    PipelineWord.STOPPED: "it is stopped already",
}


class Pipelines:
    """Queries of one tenant's pipelines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def one(self, tenant: str, pipeline: str) -> dict[str, Any] | None:
        """The tenant's pipeline as it is shown, or None."""
        rows = await self._database.fetch(ONE, tenant, pipeline, 1)
        return _of_row(tenant, rows[0]) if rows else None

    async def page(self, tenant: str, *, before: str | None, limit: int) -> list[dict[str, Any]]:
        """The pipelines before the id `before`, newest first."""
        rows = await self._database.fetch(PAGE, tenant, before or _AFTER_ALL_IDS, limit)
        return [_of_row(tenant, row) for row in rows]


def new_view(tenant: str, name: str, steps: Sequence[JobRecord]) -> dict[str, Any]:
    """A pipeline just submitted."""
    first = steps[0]
    assert first.pipeline is not None, "a step knows its pipeline"
    new = NewPipeline(first.pipeline.id, first.project, first.user, name, first.submitted_at)
    return _view(tenant, new, [step.model_dump(mode="json") for step in steps], [])


def why_not_stopped(word: PipelineWord) -> str | None:
    """Why a pipeline cannot be stopped, None where it can."""
    return _ENDED.get(word)


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
        "finished_at": record.get("finished_at"),
        "warnings": record.get("warnings", []),
        "deleted_at": None if deleted_at is None else _time(deleted_at),
    }


def _of_row(tenant: str, row: Any) -> dict[str, Any]:
    read = NewPipeline(row["id"], row["project"], row["user_name"], row["name"], row["submitted_at"])
    return _view(tenant, read, [orjson.loads(step) for step in row["steps"]], row["gone"])


def _view(
    tenant: str, pipeline: NewPipeline, records: Sequence[dict[str, Any]], gone: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """`gone` are the steps whose jobs were deleted, as they were shown last: the word counts them with the others."""
    steps = sorted([*map(step_view, records), *gone], key=lambda step: int(step["index"]))
    word = pipeline_word([(State(step["state"]), _end_reason(step)) for step in steps])
    started = [at for step in steps if (at := step["started_at"]) is not None]
    ended = all(step["state"] in TERMINAL for step in steps)
    return {
        "id": pipeline.id,
        "tenant": tenant,
        "project": pipeline.project,
        "user": pipeline.user,
        "name": pipeline.name,
        "word": word,
        "message": _message(steps) if ended else None,
        "steps": steps,
        "actions": {"stop": _stop(word, steps)},
        "submitted_at": _time(pipeline.submitted_at),
        "started_at": min(started, key=datetime.fromisoformat, default=None),
        "finished_at": max((step["finished_at"] for step in steps), key=datetime.fromisoformat) if ended else None,
    }


def _message(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Why it did not succeed: the first step that did not, in its own words."""
    first = next((step for step in steps if step["state"] != State.SUCCEEDED), None)
    return None if first is None else f"step {first['name']}: {first['message']}"


def _stop(word: PipelineWord, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    why_not = why_not_stopped(word)
    if why_not is None and all(step["state"] in TERMINAL or step["desired_state"] == Desired.STOPPED for step in steps):
        why_not = "it is being stopped already"
    return {"allowed": why_not is None, "why_not": why_not}


def _end_reason(step: Mapping[str, Any]) -> EndReason | None:
    reason = step["end_reason"]
    return None if reason is None else EndReason(reason)


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
