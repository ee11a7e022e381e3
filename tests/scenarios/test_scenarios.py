"""Every `*.toml` beside this file: what is submitted, what happens, and exactly the events that follow.

`steps` are submitted as one pipeline, each with `retries` of its own where that is given (or `refused` with that
sentence). Each `[[then]]` is one transaction: `facts` as the services would send them (`telling.py` has the words), or
a `command` of a person, rin or whom `by` names, with the HTTP status `answer` and the sentence `why` where it is not
done. `events` are all events that it makes, in the order of the log, `word` is the pipeline's after it, and `waits` is
how begins what a step waits on then. At the end the word and the steps are as `[end]` says, and every record is what a
replay of its log gives.
"""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import nats
import orjson
import pytest

from services.api.domain import replay
from services.api.facts import Facts
from shared.contracts.events import decode_event
from shared.lifecycle.record import JobRecord
from shared.runtime.topology import ensure
from tests.databases import Databases
from tests.integration.api.conftest import ACME_ADMIN, RunningApi, running, settings_for
from tests.integration.api.test_streams import reading
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.telling import Told
from tests.servers import NatsServer

SCENARIOS = {path.stem: tomllib.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.toml"))}
EVENTS = "SELECT job, type FROM events WHERE job = ANY ($1::text[]) AND id > $2 ORDER BY id"
RECORDS = "SELECT record::text FROM jobs WHERE id = ANY ($1::text[])"


@pytest.fixture(scope="module")
async def api(
    databases: Databases, nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningApi]:
    """One api for all scenarios: each has a pipeline of its own."""
    connection = await nats.connect(nats_server.url, **nats_server.login("admin"))
    await ensure(connection.jetstream())
    await connection.close()
    database = await databases.fresh("api")
    async with running(
        settings_for(database, nats_server, tmp_path_factory.mktemp("blobs")), database, nats_server
    ) as api:
        yield api
    await databases.drop(database)


class Play:
    """A scenario under way."""

    def __init__(self, api: RunningApi) -> None:
        self._api = api
        self._clients = {"rin": api.client(), "ada": api.client(ACME_ADMIN)}
        self._client = self._clients["rin"]
        self._facts = Facts(api.service, api.api.store)
        self._logged = 0
        self.pipeline = ""
        self.jobs: dict[str, str] = {}

    async def _posted(self, steps: list[str], retries: int | None = None) -> httpx.Response:
        step: dict[str, Any] = {"spec": {"command": ["true"], "outputs": ["model/**"]}}
        if retries is not None:
            step["retries"] = retries
        body = {"steps": [step | {"name": name} for name in steps]}
        return await self._client.post("/v1/pipelines", json=body)

    async def is_refused(self, steps: list[str], sentence: str) -> None:
        refused = await self._posted(steps)
        assert (refused.status_code, refused.json()["detail"]) == (422, sentence)

    async def submit(self, steps: list[str], retries: int | None) -> None:
        made = await self._posted(steps, retries)
        assert made.status_code == 201, made.text
        self.pipeline = made.json()["id"]
        self.jobs = {step["name"]: step["job"] for step in made.json()["steps"]}
        self.told = Told(self.jobs)

    async def happen(self, what: dict[str, Any]) -> None:
        """One batch of facts, or one command with the HTTP status of its answer."""
        if "facts" in what:
            await self._facts.take([fact for line in what["facts"] for fact in self.told.facts(line)])
        if "command" in what:
            action, _, target = what["command"].partition(" ")
            path = f"pipelines/{self.pipeline}" if target == "pipeline" else f"jobs/{self.jobs[target]}"
            answer = await self._clients[what.get("by", "rin")].post(f"/v1/{path}/{action}", json={})
            assert answer.status_code == what.get("answer", 200), answer.text
            if "why" in what:
                assert answer.json()["detail"] == f"{action} is not possible: {what['why']}"

    async def events(self) -> list[str]:
        """What was logged since the last look, as `<step> <event>`."""
        rows = await self._api.service.db.fetch(EVENTS, list(self.jobs.values()), self._logged)
        self._logged = await self._api.service.db.fetchval("SELECT coalesce(max(id), 0) FROM events")
        names = {job: name for name, job in self.jobs.items()}
        self.told.attempts.update(names[row["job"]] for row in rows if row["type"] == "queued")
        return [f"{names[row['job']]} {row['type']}" for row in rows]

    async def view(self) -> dict[str, Any]:
        shown: dict[str, Any] = (await self._client.get(f"/v1/pipelines/{self.pipeline}")).json()
        return shown

    async def replays(self) -> None:
        """Folding the logged inputs of each step gives its record."""
        for text in await self._api.service.db.fetch(RECORDS, list(self.jobs.values())):
            record = JobRecord.model_validate_json(text[0])
            first, *log = await self._api.api.reads.inputs(record.id)
            made = decode_event(first[0]).job
            assert replay(made, [entry[1:] for entry in log]) == record


@pytest.mark.parametrize("script", [pytest.param(script, id=name) for name, script in SCENARIOS.items()])
async def test_scenario(api: RunningApi, script: dict[str, Any]) -> None:
    play = Play(api)
    if "refused" in script:
        return await play.is_refused(script["steps"], script["refused"])
    await play.submit(script["steps"], script.get("retries"))
    assert await play.events() == [f"{step} queued" for step in script["steps"]]
    for number, what in enumerate(script["then"], 1):
        await play.happen(what)
        assert await play.events() == what["events"], f"[[then]] {number}: {what}"
        if "word" in what:
            assert (await play.view())["word"] == what["word"], f"[[then]] {number}: {what}"
        if "waits" in what:
            waits = {step["name"]: step["waiting_on"] or "" for step in (await play.view())["steps"]}
            found = {step: waits[step][: len(text)] for step, text in what["waits"].items()}
            assert found == what["waits"], f"[[then]] {number}: {what}"
    end, view = script["end"], await play.view()
    assert view["word"] == end["word"]
    assert {step["name"]: f"{step['state']} {step['end_reason'] or ''}".strip() for step in view["steps"]} == end[
        "steps"
    ]
    assert (view["message"] or "").startswith(end.get("message", ""))
    await play.replays()
    return None


async def test_an_automatic_retry_shows_no_failed_to_whoever_waits_for_the_end(api: RunningApi) -> None:
    """It goes straight back to QUEUED: a stream that ends with the job ends once, with what became of it."""
    play = Play(api)
    await play.submit(["A"], retries=2)
    await play.events()
    async with reading(api.client(), f"/v1/jobs/{play.jobs['A']}/events") as reader:
        for lines in (["A runs", "A fails"], ["A runs", "A fails"], ["A runs", "A succeeds"]):
            await play.happen({"facts": lines})
            await play.events()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.ended.wait()
    seen = [orjson.loads(event.data)["job"] for event in reader.events]
    assert [job["state"] for job in seen] == ["QUEUED", "QUEUED", "QUEUED", "SUCCEEDED"]
    assert seen[-1]["retries"]["count"] == 2
