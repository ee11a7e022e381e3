"""Why a job is where it is."""

from fastapi import APIRouter
from starlette.responses import Response

from services.api.context import ApiPart, CallerPart
from services.api.permitted import job_actions
from shared.lifecycle.explain import Explanation, explain
from shared.lifecycle.states import State

router = APIRouter()


@router.get("/jobs/{job}/explain", responses={200: {"model": Explanation}})
async def explained(job: str, api: ApiPart, caller: CallerPart) -> Response:
    """Why it is where it is, what was seen of it, where, when and by whom, what comes next, and what it has cost."""
    found = await api.job(caller, job)
    record = found.record
    stand = await api.asking.positions([record.id] if record.state is State.QUEUED else [])
    now = api.clock.now()
    actions = job_actions(record, found.around, now, is_admin=caller.is_admin)
    answer = explain(record, actions, now, gates=stand.gates.get(record.id, ()))
    return Response(answer.model_dump_json(), media_type="application/json")
