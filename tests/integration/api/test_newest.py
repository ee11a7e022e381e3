"""What services that hold something of a job may ask about it."""

import httpx
import pytest

from shared.contracts.events import decode_event
from shared.contracts.ids import new_id
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.errors import RpcError
from tests.integration.api.conftest import RunningApi


async def newest(api: RunningApi, *jobs: str) -> list[tuple[str, str, int]]:
    asked = NewestAsked(jobs=jobs).model_dump_json().encode()
    answer = NewestAnswer.model_validate_json(await api.service.call("api", "newest", asked))
    found = [decode_event(body.encode()).job for body in answer.events]
    return sorted((job.id, job.state, job.seq) for job in found)


async def test_tells_how_it_stands_with_jobs_and_leaves_out_unknown_ones(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    waiting, moved = [(await api.submit(rin))["id"] for _ in range(2)]
    await api.report("admitted", moved, admission=1)
    await api.becomes(rin, moved, "SUBMITTED")
    unknown = new_id("j", api.service.clock.now())
    expected = sorted([(waiting, "QUEUED", 1), (moved, "SUBMITTED", 2)])
    assert await newest(api, waiting, unknown, moved) == expected


async def test_refuses_a_question_about_too_many_jobs(api: RunningApi) -> None:
    with pytest.raises(RpcError, match="101 jobs in one query; ask for at most 100"):
        await newest(api, *(f"j{number}" for number in range(101)))
