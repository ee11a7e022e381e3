"""Steps of the same pipelines that end at the same time: no deadlock, every decision once, every log replays."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import httpx
import pytest

from services.api.domain import Reported, replay
from services.api.facts import Facts
from shared.contracts.events import decode_event
from shared.lifecycle.record import JobRecord
from shared.runtime.database import Tx
from tests.integration.api.conftest import RunningApi
from tests.scenarios.telling import Told

OUTPUTS = {"command": ["true"], "outputs": ["model/**"]}
BODY = {"steps": [{"name": name, "spec": OUTPUTS} for name in "ABC"]}
DECISIONS = 'SELECT job, inputs FROM events WHERE inputs @> \'[{"kind": "upstream_done"}]\''


async def _made(client: httpx.AsyncClient, count: int) -> list[Told]:
    """Pipelines of the steps A, B and C."""
    made = []
    for _ in range(count):
        answer = await client.post("/v1/pipelines", json=BODY)
        assert answer.status_code == 201, answer.text
        jobs = {step["name"]: step["job"] for step in answer.json()["steps"]}
        made.append(Told(jobs, attempts=Counter(jobs.keys())))
    return made


def _lines(pipelines: Sequence[Told], *lines: str) -> list[Reported]:
    return [fact for told in pipelines for line in lines for fact in told.facts(line)]


async def _replays(api: RunningApi) -> dict[str, JobRecord]:
    """The record of every job, each of which its log gives."""
    records = {}
    for row in await api.service.db.fetch("SELECT record::text FROM jobs"):
        record = JobRecord.model_validate_json(row[0])
        first, *log = await api.api.reads.inputs(record.id)
        assert replay(decode_event(first[0]).job, [entry[1:] for entry in log]) == record
        records[record.id] = record
    return records


async def test_two_transactions_that_end_steps_of_the_same_pipelines_wait_for_each_other_in_order(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    """Facts end the first steps, twice over and in any order, while people stop the last ones."""
    chance = random.Random(7)
    for _ in range(3):
        pipelines = await _made(rin, 12)
        facts = Facts(api.service, api.api.store)
        await facts.take(_lines(pipelines, "A runs"))
        batches: list[list[Reported]] = []
        for _ in range(2):
            chance.shuffle(pipelines)
            batches.append(_lines(pipelines, "A succeeds") if not batches else _lines(pipelines, "again A succeeds"))
        chance.shuffle(pipelines)
        stops = [rin.post(f"/v1/jobs/{told.jobs['C']}/stop") for told in pipelines]
        answers: list[Any] = await asyncio.gather(*map(facts.take, batches), *stops)
        assert {answer.status_code for answer in answers[len(batches) :]} == {200}, "nobody had to give way"
    opened = [row["job"] for row in await api.service.db.fetch(DECISIONS)]
    assert len(opened) == len(set(opened)) == 36, "each second step was let through once"
    records = await _replays(api)
    states = [(r.pipeline.step, r.state) for r in records.values() if r.pipeline is not None]
    assert sorted(set(states)) == [("A", "SUCCEEDED"), ("B", "QUEUED"), ("C", "STOPPED")]


async def test_a_step_that_is_stopped_while_the_one_before_it_ends_is_decided_once(
    api: RunningApi, rin: httpx.AsyncClient
) -> None:
    """Whoever comes first: B is stopped by the person, or out of reach because A failed; C has one reason, too."""
    pipelines = await _made(rin, 20)
    facts = Facts(api.service, api.api.store)
    await facts.take(_lines(pipelines, "A runs"))
    ends = [facts.take(_lines([told], "A fails")) for told in pipelines]
    stops = [rin.post(f"/v1/jobs/{told.jobs['B']}/stop") for told in pipelines]
    both = [task for pair in zip(ends, stops, strict=True) for task in pair]
    answers = [answer for answer in await asyncio.gather(*both) if answer is not None]
    assert {answer.status_code for answer in answers} <= {200, 409}
    records = await _replays(api)
    for told, answer in zip(pipelines, answers, strict=True):
        ends_of = {step: records[job].end_reason for step, job in told.jobs.items()}
        stopped = answer.status_code == 200
        assert ends_of["B"] == ("stopped_by_user" if stopped else "upstream_failed")
        assert ends_of["C"] == "upstream_failed"


async def test_a_batch_that_ends_steps_of_many_pipelines_costs_no_more_statements_than_one(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    ours = ContextVar("ours", default=False)  # the api's own ticks go on meanwhile
    for name in ("fetch", "execute"):
        plain = getattr(Tx, name)

        async def counted(tx: Tx, sql: str, *args: Any, plain: Any = plain) -> Any:
            if ours.get():
                statements.append(sql)
            return await plain(tx, sql, *args)

        monkeypatch.setattr(Tx, name, counted)

    async def statements_of(pipelines: list[Told], line: str) -> int:
        lines = _lines(pipelines, line)
        statements.clear()
        ours.set(True)
        await facts.take(lines)
        ours.set(False)
        return len(statements)

    facts = Facts(api.service, api.api.store)
    one, many = await _made(rin, 1), await _made(rin, 25)
    for line in ("A runs", "A succeeds", "B runs", "B fails"):
        assert await statements_of(one, line) == await statements_of(many, line) == 3, line
    words = [item["word"] for item in (await rin.get("/v1/pipelines", params={"limit": 100})).json()["items"]]
    assert words == ["partial"] * 26
