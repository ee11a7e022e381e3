"""Pipelines in a transaction on the job record: the steps of one are locked together, and that one came to an end, or
left it, is passed on to those after it before the commit."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from asyncpg import Record

from services.api.domain import Change, take_command
from shared.lifecycle.advance import advance
from shared.lifecycle.inputs import INPUT, AnyCommand
from shared.lifecycle.pipeline import follow_ups
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import TERMINAL

INSERT_PIPELINE: Final = """
INSERT INTO pipelines (id, tenant, project, user_name, name, submitted_at) VALUES ($1, $2, $3, $4, $5, $6)
"""
# A step was deleted: what was shown of it stays for as long as there is another one.
STEP_GONE: Final = "UPDATE pipelines SET gone = gone || $2::jsonb WHERE id = $1"
PIPELINE_GONE: Final = """
WITH gone AS (
    DELETE FROM pipelines WHERE id = $1 AND NOT EXISTS (SELECT FROM jobs WHERE pipeline = $1) RETURNING id, tenant
)
INSERT INTO tombstones (job, tenant, deleted_at) SELECT id, tenant, $2 FROM gone
"""


@dataclass(frozen=True, slots=True)
class NewPipeline:
    """A pipeline about to be inserted; its steps say the rest."""

    id: str
    project: str
    user: str
    name: str
    submitted_at: datetime

    def columns(self, tenant: str) -> tuple[object, ...]:
        """For INSERT_PIPELINE."""
        return self.id, tenant, self.project, self.user, self.name, self.submitted_at


class LockedSteps:
    """The steps of pipelines whose rows a transaction holds; `read` makes the record of one, where one of them ends."""

    def __init__(self, read: Callable[[Record], JobRecord]) -> None:
        self._read = read
        self._rows: dict[str, dict[str, Record]] = {}

    def noted(self, rows: Sequence[Record]) -> Sequence[Record]:
        """The locked rows given (`id`, `pipeline`, `record`), of which the steps are remembered."""
        for row in rows:
            if row["pipeline"] is not None:
                self._rows.setdefault(row["pipeline"], {})[row["id"]] = row
        return rows

    def with_what_follows(self, changes: Sequence[Change]) -> list[Change]:
        """The changes, and after them what steps that came to an end, or left one, mean for later steps. A job that is
        told of twice has one next version all the same."""
        after = {change.record.id: change for change in changes}
        for pipeline, at in _moved_on(changes).items():
            for step, command in follow_ups(self._steps(pipeline, after), at):
                known = after.pop(step.id, None)
                change = take_command(step, command, at)[0] if known is None else _also(known, command)
                assert change is not None, "the pipeline decides only what a step waits for"
                after[step.id] = change
        return list(after.values())

    def _steps(self, pipeline: str, after: dict[str, Change]) -> list[JobRecord]:
        """The records in the order of their ids, which is that of the steps."""
        return [
            after[job].record if job in after else self._read(row) for job, row in sorted(self._rows[pipeline].items())
        ]


def _moved_on(changes: Sequence[Change]) -> dict[str, datetime]:
    """Pipelines of which a step has just come to an end or left one, with the moment."""
    return {
        change.record.pipeline.id: change.at
        for change in changes
        if change.record.pipeline is not None
        and change.before is not None
        and change.before.state is not change.record.state
        and not TERMINAL.isdisjoint((change.before.state, change.record.state))
    }


def _also(change: Change, command: AnyCommand) -> Change:
    """The change with one input more, as a replay of its log will make it."""
    assert change.before is not None, "a job just made has no change before it"
    logged = [INPUT.validate_python(one) for one in json.loads(change.inputs)]
    done = advance(change.before, [*logged, command], change.at)
    assert done.event is not None, "what came before has changed something"
    inputs = f"{change.inputs[:-1]},{command.model_dump_json(exclude_none=True)}]"
    return replace(change, record=done.record, event=done.event, inputs=inputs)
