"""Every situation of a job x every action, as a user and as an admin: what the job's view says of it, and that the call
agrees. The sentences are checked in (`actions.txt`), so that one that changes is changed on purpose."""

import asyncio
import difflib
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from nats.js import JetStreamContext

from tests.databases import FreshDatabase
from tests.integration.api.conftest import RunningApi, running, settings_for
from tests.integration.api.situations import SITUATIONS, Play
from tests.servers import NatsServer

TABLE: Final = Path(__file__).with_name("actions.txt")
ACTIONS: Final = ("stop", "pause", "resume", "retry", "delete", "hold", "release")
_NAMES: Final = ((re.compile(r"\bj[0-9a-z]{26}\b"), "JOB"), (re.compile(r"\bp[0-9a-z]{26}\b"), "PIPELINE"))
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TIME: Final = re.compile(r"[0-9-]{10} [0-9:]{8} UTC")


@pytest.fixture
async def api(
    service_database: FreshDatabase, streams: JetStreamContext, nats_server: NatsServer, tmp_path: Path
) -> AsyncIterator[RunningApi]:
    """One in which nothing is retried by itself, and by hand once."""
    database = await service_database("api")
    settings = settings_for(database, nats_server, tmp_path, infrastructure_retry_budget=0, retries_by_hand=1)
    async with running(settings, database, nats_server) as api:
        yield api


async def test_the_calls_agree_with_what_is_shown_and_both_with_the_table(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    play = Play(api, rin)
    roles = {"user": rin, "admin": ada}
    found: list[str] = []
    for words, made in SITUATIONS.items():
        jobs = await made(play, len(ACTIONS) * len(roles))
        answers: dict[tuple[str, str], str] = {}
        for role, client in roles.items():
            mine, jobs = jobs[: len(ACTIONS)], jobs[len(ACTIONS) :]
            shown = await _shown(client)
            assert len({shown[job]["state"] for job in mine if job in shown}) <= 1, f"not every job {words}"
            asked = zip(ACTIONS, mine, strict=True)
            given = await asyncio.gather(*(_answer(client, action, job, shown.get(job)) for action, job in asked))
            answers |= {(action, role): text for action, text in zip(ACTIONS, given, strict=True)}
        found += [f"# {words}", *_lines(answers), ""]
    agreed = TABLE.read_text().splitlines()
    changed = "\n".join(difflib.unified_diff(agreed, found, "agreed", "found", lineterm=""))
    assert not changed, changed


async def _shown(client: httpx.AsyncClient) -> dict[str, Any]:
    """The newest jobs as they are shown to one of a role."""
    page = (await client.get("/v1/jobs", params={"limit": 3 * len(ACTIONS) * 2})).json()
    return {view["id"]: view for view in page["items"]}


async def _answer(client: httpx.AsyncClient, action: str, job: str, before: dict[str, Any] | None) -> str:
    """What became of the call, in the table's words; a contradiction to what was shown stands there as one. Each call
    is made to a job that nobody has asked anything of; one without a view was deleted."""
    called = await (client.delete(f"/v1/jobs/{job}") if action == "delete" else client.post(f"/v1/jobs/{job}/{action}"))
    if before is None:
        return f"{called.status_code} {called.json()['detail'] if called.content else ''}".strip()
    shown = before["actions"][action]
    if called.status_code == 409 and called.json()["detail"] == f"{action} is not possible: {shown['why_not']}":
        said = f"refused: {shown['why_not']}"
    elif called.status_code == 204 or (called.status_code == 200 and called.json()["seq"] > before["seq"]):
        said = "yes"
    elif called.status_code == 200:
        said = f"so already: {shown['why_not']}"
    else:
        said = f"{called.status_code} {called.text}"
    return said if shown["allowed"] is (said == "yes") else f"NOT AS SHOWN: {shown}, and then {said}"


def _lines(answers: Mapping[tuple[str, str], str]) -> list[str]:
    """A line for each action; two where an admin is answered otherwise."""
    lines = []
    for action in ACTIONS:
        user, admin = _without_names(answers[action, "user"]), _without_names(answers[action, "admin"])
        lines.append(f"{action:8} {user}")
        if admin != user:
            lines.append(f"{'  admin':8} {admin}")
    return lines


def _without_names(text: str) -> str:
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return _TIME.sub("TIME", _DIGEST.sub("DIGEST", text))
