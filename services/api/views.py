"""The job as people see it: the record, its whole spec, and what is computed when it is read. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from services.api.permitted import NOTHING_AROUND, Around, job_actions
from shared.lifecycle.duties import holdings
from shared.lifecycle.explain import seconds
from shared.lifecycle.facts import Gate
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import Phase, State
from shared.lifecycle.usage import gpu_milliseconds


def job_view(
    record: JobRecord,
    spec: Mapping[str, Any],
    now: datetime,
    *,
    is_admin: bool,
    around: Around = NOTHING_AROUND,
    position: int | None = None,
    gates: Sequence[Gate] = (),
) -> dict[str, Any]:
    """What `GET /v1/jobs/{id}` returns. `position` and `gates` are the gatekeeper's, none where it did not say."""
    view = record.model_dump(mode="json")
    if not record.current.sealed:
        view["attempts"][-1]["stages"] = view["stages"]
    if record.state is State.QUEUED and gates:
        _show_gates(view, gates)
    if view["gate"] is not None:
        view["gate"]["position"] = position
    holds_gpus, occupies_slot = holdings(record)
    view["spec"] = spec
    view["backend"] |= {"observed_at": None, "stale": False}
    view["holds_gpus"] = holds_gpus
    view["occupies_slot"] = occupies_slot
    view["counts_gpu_time"] = counts_gpu_time(record)
    view["gpu_seconds"] = seconds(gpu_milliseconds(record, now))
    answers = job_actions(record, around, now, is_admin=is_admin)
    view["actions"] = {name: answer.model_dump() for name, answer in answers.items()}
    return view


def counts_gpu_time(record: JobRecord) -> bool:
    """Whether the meter runs now."""
    return (
        record.state is State.RUNNING
        and record.resources.gpus > 0
        and record.command_ended_at is None
        and record.phase is not Phase.SUSPENDED_BY_BACKEND
    )


def _show_gates(view: dict[str, Any], gates: Sequence[Gate]) -> None:
    """The gates with the numbers of now: the record keeps those of the last change of the first gate."""
    view["closed_gates"] = [gate.model_dump(mode="json") for gate in gates]
    view["gate"] = dict(view["closed_gates"][0])
    for stage in view["stages"]:
        if stage["name"] == "queued" and stage["status"] == "active":
            stage["waiting_on"] = f"{gates[0].name}: {gates[0].reason}"
