"""What is refused at submit, in sentences that help; what is only warned of; the same request sent twice."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from shared.contracts.spec import JobSpec
from tests.integration.api.conftest import RunningApi

Answering = Callable[..., Awaitable[None]]
TRUE = {"spec": {"command": ["true"]}}
_FIELDS = tuple(JobSpec.model_fields)


def _fits(*why_not: str | None) -> Callable[[bytes], bytes]:
    return lambda _: orjson.dumps({"why_not": why_not})


WRONG: list[tuple[Any, str]] = [
    ({"spec": {"comand": ["true"]}}, "spec.command is missing: it has to be given"),
    ({"spec": {"command": ["true"], "gpu": 1}}, "spec.gpu is not a field that is known here: did you mean gpus?"),
    ({"spec": {"command": []}}, "spec.command: a list with 0 entries was given; it is a list of at least 1 entry"),
    (
        {"spec": {"command": ["true"], "gpus": -1}},
        "spec.gpus: -1 was given; it is 0 or more",
    ),
    ({"spec": {"command": ["true"], "gpus": True}}, "spec.gpus: true was given; it is a whole number, without quotes"),
    (
        {"spec": {"command": ["true"], "gpus": "many"}},
        "spec.gpus: 'many' was given; it is a whole number, without quotes",
    ),
    ({"spec": {"command": ["true"], "outputs": ["../x"]}}, "spec.outputs: '../x' leads out of the job's directory"),
    (
        {"spec": {"command": ["true"], "env": {"1A": "secret-value"}}},
        "spec.env: '1A' is not a valid environment name",
    ),
    ({"spec": {"command": ["true"], "env": {"A": 1}}}, "spec.env.A: a value (not shown) was given; "),
    ({"spec": {"command": ["true"], "image": "a\0b"}}, "spec.image: it holds a NUL character: take it out"),
    ({"spec": {"command": ["true"], "region": "a\0b"}}, "spec.region: it holds a NUL character: take it out"),
    ({"name": "", **TRUE}, "name: '' was given; a name is 1 to 100 printable characters"),
    ({"name": "a\nb", **TRUE}, "name: 'a\\nb' was given; a name is 1 to 100 printable characters on one line"),
    ({"project": "Big Project", **TRUE}, "project: 'Big Project' was given; a project is 1 to 40 of a-z, 0-9 and -"),
    ({"spec": {"command": ["true"], "outputs": [""]}}, "spec.outputs: an empty path was given; "),
    ({"spec": {"command": ["x" * 50_000]}}, "spec has 50"),
    ({"spec": {"command": ["true"], "snapshot": "sha256:" + "0" * 64}}, "is not stored for tenant acme: send it"),
    (
        {"retries": 11, **TRUE},
        "retries: 11 was given, and a job may ask for at most 10 automatic retries here: ask for fewer, or retry it by",
    ),
    ([], "body: a list with 0 entries was given; it is a JSON object"),
]
"""A request, and what the answer says about it."""


async def test_says_what_is_wrong_with_a_job(rin: httpx.AsyncClient) -> None:
    for body, said in WRONG:
        response = await rin.post("/v1/jobs", json=body)
        problem = response.json()
        assert response.status_code in (413, 422), problem
        assert response.headers["content-type"] == "application/problem+json"
        assert said in " ".join([problem["detail"], *(one["message"] for one in problem.get("errors", ()))])
        assert "secret-value" not in response.text
    assert (await rin.get("/v1/jobs")).json()["items"] == []


async def test_refuses_reasons_and_users_that_are_no_printable_line(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin))["id"]
    for text in (" ", "a\nb", "a\x1bb", "a\u2066b"):
        held = await rin.post(f"/v1/jobs/{job}/hold", json={"reason": text})
        assert (held.status_code, "a reason is 1 to 500 printable" in held.json()["detail"]) == (422, True)
        made = await ada.post("/v1/tokens", json={"tenant": "acme", "user": text})
        assert (made.status_code, "a name is 1 to 100 printable" in made.json()["detail"]) == (422, True)


async def test_a_job_without_a_name_is_named_after_its_program(api: RunningApi, rin: httpx.AsyncClient) -> None:
    names = [(await api.submit(rin, command=[program]))["name"] for program in ("./train.py", "a\nb", "/ ")]
    assert names == ["train.py", "a?b", "job"]


async def test_refuses_bodies_that_cannot_be_read(rin: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    broken = await rin.post("/v1/jobs", content=b'{"spec": ', headers=headers)
    assert (broken.status_code, "no JSON" in broken.json()["detail"]) == (400, True)
    deep = await rin.post("/v1/jobs", content=b"[" * 100_000, headers=headers)
    assert deep.status_code in (400, 422)
    for content in (b'{"spec":{"command":["\\ud800"]}}', b'{"spec":{"command":["x"],"\\ud800":1}}'):
        surrogate = await rin.post("/v1/jobs", content=content, headers=headers)
        assert surrogate.status_code == 422, surrogate.text
    form = await rin.post("/v1/jobs", content=b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (form.status_code, "application/json" in form.json()["detail"]) == (415, True)
    large = await rin.post("/v1/jobs", content=b"x" * 600_000, headers=headers)
    assert (large.status_code, "524288" in large.json()["detail"]) == (413, True)

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 65_536

    chunked = await rin.post("/v1/jobs", content=chunks(), headers=headers)
    assert chunked.status_code == 413
    latin = await rin.post("/v1/jobs", content=b'{"name": "caf\xe9"}', headers=headers)
    assert (latin.status_code, "in UTF-8" in latin.json()["detail"]) == (400, True), latin.text
    empty = await rin.post("/v1/jobs")
    assert (empty.status_code, "body is missing" in empty.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("field", "given", "shown"),
    [
        ("image", "registry/image:1", "'registry/image:1'"),
        ("secrets", ["TOKEN", "KEY"], "'TOKEN' and 1 more"),
        ("nodes", 2, "2"),
        ("expect", ["model.bin"], "'model.bin'"),
    ],
)
async def test_refuses_what_it_would_only_ignore(rin: httpx.AsyncClient, field: str, given: Any, shown: str) -> None:
    said = f"spec.{field}: {shown} was given, and the local backend of this server does not carry it out: leave it out"
    wish = {"spec": {"command": ["true"], field: given}}
    one = await rin.post("/v1/jobs", json=wish)
    assert (one.status_code, one.json()["detail"]) == (422, said)
    many = await rin.post("/v1/jobs/batch", json={"jobs": [TRUE, wish]})
    assert (many.status_code, many.json()["detail"]) == (422, f"jobs[1].{said}")
    assert (await rin.get("/v1/jobs")).json()["items"] == []


async def test_no_wrong_value_is_answered_in_the_validators_words(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin))["id"]
    wrong: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "", "\0", "\ud800", "x" * 600, [], [1], [[]], {}, {"a": 1})
    bodies = [
        *(("POST", "/v1/jobs", {"spec": {"command": ["true"], field: value}}) for field in _FIELDS for value in wrong),
        *(("POST", "/v1/jobs", {**TRUE, field: value}) for field in ("name", "project", "priority") for value in wrong),
        *(("POST", "/v1/jobs", {"spec": value}) for value in wrong),
        *(("POST", "/v1/jobs/batch", {"jobs": value}) for value in wrong),
        *(("POST", f"/v1/jobs/{job}/stop", {"grace_seconds": value}) for value in wrong[1:]),
        *(("POST", f"/v1/jobs/{job}/hold", {"reason": value}) for value in wrong),
        *(("PUT", "/v1/quotas/acme", {"gpus": value}) for value in wrong[1:]),
        *(("POST", "/v1/tokens", {"tenant": "acme", "user": value, "role": value}) for value in wrong),
        *(("GET", f"/v1/jobs?limit={value}", None) for value in ("x", "1.5", "", "-1", "999")),
        *(("GET", f"/v1/jobs/{job}/logs?follow={value}&stream={value}", None) for value in ("x", "", "-1")),
        *(("GET", f"/v1/dead-letters/api/{value}", None) for value in ("x", "0", "9" * 40)),
    ]
    for method, path, body in bodies:
        headers = {"Content-Type": "application/json"}
        answer = await ada.request(method, path, content=None if body is None else json.dumps(body), headers=headers)
        if answer.status_code < 400:
            continue
        assert answer.status_code in (404, 409, 422, 502, 503), (path, body, answer.text)
        for words in ("nput should", "nable to parse", "should", "tuple", "dictionary", "codec", "pydantic"):
            assert words not in answer.text, (path, body, answer.text)


async def test_names_the_fields_of_the_body_that_was_sent(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    stopped = await rin.post(f"/v1/jobs/{job}/stop", json={"forse": True})
    assert stopped.json()["detail"] == "forse is not a field that is known here: did you mean force?"
    released = await rin.post(f"/v1/jobs/{job}/release", json={"reason": "x"})
    assert released.json()["detail"] == "reason is not a field that is known here: take it out"


async def test_refuses_a_query_parameter_that_it_would_only_ignore(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    for path, said in (
        ("/v1/jobs?stat=RUNNING", "query: 'stat' is not a parameter that is known here: did you mean state?"),
        ("/v1/jobs?zzz", "query: 'zzz' is not a parameter that is known here: known are cursor, limit, name, state"),
        (f"/v1/jobs/{job}?attempt=1", "query: 'attempt' is not a parameter that is known here: take it out"),
        ("/v1/usage?grup_by=user", "query: 'grup_by' is not a parameter that is known here: did you mean group_by?"),
    ):
        refused = await rin.get(path)
        assert (refused.status_code, refused.json()["detail"]) == (422, said)


async def test_names_the_job_of_a_batch_that_is_wrong_and_makes_none(rin: httpx.AsyncClient) -> None:
    response = await rin.post("/v1/jobs/batch", json={"jobs": [TRUE, TRUE, {"spec": {"command": ["x"], "nodes": 0}}]})
    assert response.status_code == 422
    assert response.json()["detail"].startswith("jobs[2].spec.nodes: 0 was given; ")
    too_many = await rin.post("/v1/jobs/batch", json={"jobs": [TRUE] * 10_001})
    assert too_many.status_code == 422
    assert (await rin.get("/v1/jobs")).json()["items"] == []


async def test_warns_where_nobody_could_say_whether_a_job_fits(api: RunningApi, rin: httpx.AsyncClient) -> None:
    view = await api.submit(rin)
    (warning,) = view["warnings"]
    assert warning.startswith("could not be checked at submit: ")
    assert "the gatekeeper did not answer" in warning


async def test_warns_of_variables_that_the_command_will_not_see(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    await answering("gatekeeper", "fits", _fits(None))
    view = await api.submit(rin, env={"HOME": "/mine", "TIDEGATE_JOB_ID": "x", "TIDEGATE_OF_MINE": "seen", "A": "1"})
    assert view["warnings"] == [
        "spec.env: HOME, TIDEGATE_JOB_ID was given, and the command does not see that: the backend sets it itself"
    ]
    assert (await rin.get(f"/v1/jobs/{view['id']}")).json()["warnings"] == view["warnings"]
    assert (await api.submit(rin, env={"A": "1"}))["warnings"] == []


async def test_refuses_a_job_that_can_never_pass(rin: httpx.AsyncClient, answering: Answering) -> None:
    await answering("gatekeeper", "fits", _fits(None, "needs 99 GPUs; the largest pool has 8"))
    jobs = [TRUE, TRUE, {"spec": {"command": ["true"], "gpus": 99}}]
    response = await rin.post("/v1/jobs/batch", json={"jobs": jobs})
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == "urn:tidegate:problem:can-never-run"
    assert problem["detail"] == "jobs[2]: needs 99 GPUs; the largest pool has 8"


async def test_asks_about_very_many_kinds_of_jobs_in_parts(rin: httpx.AsyncClient, answering: Answering) -> None:
    asked: list[int] = []

    def fits(request: bytes) -> bytes:
        asked.append(len(orjson.loads(request)["resources"]))
        return orjson.dumps({"why_not": [None] * asked[-1]})

    await answering("gatekeeper", "fits", fits)
    jobs = [{"spec": {"command": ["true"], "time_limit_seconds": seconds}} for seconds in range(1, 2501)]
    assert (await rin.post("/v1/jobs/batch", json={"jobs": jobs})).status_code == 201
    assert asked == [1000, 1000, 500]


async def test_shows_the_place_in_line_as_the_gatekeeper_says(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    view = await api.submit(rin, gpus=8)
    gate = {"name": "capacity", "reason": "needs 8 GPUs; 2 of 8 are free", "scope": "s", "lifted_by": "time"}
    answer = {"positions": {view["id"]: 3}, "gates": {view["id"]: [gate]}}
    await answering("gatekeeper", "positions", lambda _: orjson.dumps(answer))
    shown = (await rin.get(f"/v1/jobs/{view['id']}")).json()
    assert shown["gate"]["position"] == 3
    assert shown["stages"][0]["waiting_on"] == "capacity: needs 8 GPUs; 2 of 8 are free"


async def test_the_same_idempotency_key_gives_the_same_answer(rin: httpx.AsyncClient, kay: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(rin.post("/v1/jobs", json=TRUE, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert len((await rin.get("/v1/jobs")).json()["items"]) == 1
    other = await rin.post("/v1/jobs", json={"spec": {"command": ["false"]}}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "urn:tidegate:problem:idempotency-key-reused")
    theirs = await kay.post("/v1/jobs", json=TRUE, headers=headers)
    assert theirs.json()["tenant"] == "umbra"


async def test_lets_no_text_but_an_id_reach_the_database(rin: httpx.AsyncClient) -> None:
    for path in ("%00", "j" + "0" * 27, "'%20OR%201=1", "j%F0%9F%98%80", "..%2F..%2Fetc"):
        for suffix in ("", "/events", "/logs", "/outputs"):
            response = await rin.get(f"/v1/jobs/{path}{suffix}")
            assert response.status_code == 404, response.text


async def test_refuses_a_cursor_that_is_none(rin: httpx.AsyncClient) -> None:
    for cursor in ("x", "'; DROP TABLE jobs", "\0", "j" + "u" * 26):
        response = await rin.get("/v1/jobs", params={"cursor": cursor})
        assert response.status_code == 422
        assert "next_cursor" in response.json()["detail"]


async def test_hides_what_went_wrong_inside(
    api: RunningApi, rin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("SELECT secret FROM inside")

    monkeypatch.setattr(type(api.api.reads), "job", broken)
    response = await rin.get("/v1/jobs/j" + "0" * 26)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "the log has it under" in response.json()["detail"]
