"""Snapshots in, outputs and logs out: streamed, verified, and of the token's tenant only."""

import asyncio
import base64
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson

from shared.contracts.queries import LogsAnswer, LogsAsked, Manifest, OutputFile, OutputsAnswer
from tests.integration.api.conftest import ACME_USER, RunningApi, eventually

Answering = Callable[..., Awaitable[None]]


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def _announce(api: RunningApi, path: str, size: int) -> str:
    """The answer to the head of an upload whose body never comes."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ACME_USER}\r\n".encode())
    writer.write(f"Content-Length: {size}\r\n\r\n".encode())
    answer = (await reader.readuntil(b"}")).decode()
    writer.close()
    return answer


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def test_stores_a_snapshot_once_under_its_tenant(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient, tmp_path: Path
) -> None:
    content = os.urandom(12 * 1024 * 1024)
    path = f"/v1/snapshots/{_digest(content)}"
    assert (await rin.head(path)).status_code == 404
    assert (await rin.put(path, content=content)).status_code == 201
    assert (await rin.head(path)).status_code == 200
    assert (await rin.put(path, content=content)).status_code == 200
    assert (await kay.head(path)).status_code == 404
    stored = _files(tmp_path)
    folder = tmp_path / "acme" / "snapshots" / _digest(content).removeprefix("sha256:")
    assert [file.parent for file in stored] == [folder]
    assert stored[0].read_bytes() == content
    submitted = await rin.post("/v1/jobs", json={"spec": {"command": ["true"], "snapshot": _digest(content)}})
    assert submitted.status_code == 201
    theirs = await kay.post("/v1/jobs", json={"spec": {"command": ["true"], "snapshot": _digest(content)}})
    assert theirs.status_code == 422


async def test_refuses_a_snapshot_that_is_not_what_was_announced(
    api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path
) -> None:
    other = await rin.put(f"/v1/snapshots/{_digest(b'one')}", content=b"another")
    assert other.status_code == 422
    assert _digest(b"another") in other.json()["detail"]
    wrong = await rin.put("/v1/snapshots/sha256:12", content=b"x")
    assert (wrong.status_code, "64 hexadecimal digits" in wrong.json()["detail"]) == (422, True)
    limit = api.api.settings.max_snapshot_bytes
    large = await _announce(api, f"/v1/snapshots/{_digest(b'x')}", limit + 1)
    assert large.startswith("HTTP/1.1 413")
    assert ".tidegateignore" in large
    assert _files(tmp_path) == []


async def test_an_upload_that_breaks_off_leaves_nothing(
    api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path
) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise ConnectionError("the client is gone")

    with contextlib.suppress(ConnectionError):
        await rin.put(f"/v1/snapshots/{_digest(b'x')}", content=half())
    assert (await rin.head(f"/v1/snapshots/{_digest(b'x')}")).status_code == 404
    assert [file for file in _files(tmp_path) if file.suffix == ".gz"] == []


async def test_serves_outputs_and_ranges_of_them(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering, tmp_path: Path
) -> None:
    job = (await api.submit(rin))["id"]
    content = bytes(range(256)) * 40
    prefix = f"acme/outputs/{job}/a1-e1/"
    files = (
        OutputFile(path="model/a b.bin", size_bytes=len(content), sha256=_digest(content), mode=0o644),
        OutputFile(path="empty", size_bytes=0, sha256=_digest(b""), mode=0o644),
        OutputFile(path="plots", size_bytes=0, sha256="", mode=0o755, kind="directory"),
        OutputFile(path="gone", size_bytes=3, sha256=_digest(b"abc"), mode=0o644),
    )
    manifest = Manifest(job=job, attempt=1, prefix=prefix, files=files)
    (tmp_path / prefix / "model").mkdir(parents=True)
    (tmp_path / prefix / "model" / "a b.bin").write_bytes(content)
    await answering("stager", "outputs", lambda _: OutputsAnswer(manifest=manifest).model_dump_json().encode())
    url = f"/v1/jobs/{job}/outputs"
    assert Manifest.model_validate((await rin.get(url)).json()) == manifest
    whole = await rin.get(f"{url}/model/a%20b.bin")
    assert (whole.status_code, whole.content, whole.headers["tidegate-sha256"]) == (200, content, _digest(content))
    for asked, expected in (
        ("bytes=10-19", content[10:20]),
        ("bytes=10000-", content[10000:]),
        ("bytes=-5", content[-5:]),
    ):
        part = await rin.get(f"{url}/model/a%20b.bin", headers={"Range": asked})
        assert (part.status_code, part.content) == (206, expected), asked
    beyond = await rin.get(f"{url}/model/a%20b.bin", headers={"Range": "bytes=99999-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(content)}")
    assert (await rin.get(f"{url}/empty")).content == b""
    for path, status in (("nothing", 404), ("plots", 422), ("gone", 404), ("../../../../etc/passwd", 404)):
        assert (await rin.get(f"{url}/{path}")).status_code == status, path


async def test_a_large_manifest_is_read_from_the_blob_store_of_the_tenant_only(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering, tmp_path: Path
) -> None:
    job = (await api.submit(rin))["id"]
    manifest = Manifest(job=job, attempt=1, prefix=f"acme/outputs/{job}/a1-e1/", files=())
    keys = [f"acme/outputs/{job}/a1-e1.manifest.json", "umbra/outputs/x.manifest.json"]
    for key in keys:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_text(manifest.model_dump_json())
    answers = iter(OutputsAnswer(manifest=None, key=key).model_dump_json().encode() for key in keys)
    await answering("stager", "outputs", lambda _: next(answers))
    assert (await rin.get(f"/v1/jobs/{job}/outputs")).json()["job"] == job
    assert (await rin.get(f"/v1/jobs/{job}/outputs")).status_code == 500


class _Log:
    """A log that grows, as the watcher would tell it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[LogsAsked] = []

    def __call__(self, request: bytes) -> bytes:
        asked = LogsAsked.model_validate_json(request)
        self.asked.append(asked)
        data = self.content[asked.offset : asked.offset + asked.limit_bytes]
        return (
            LogsAnswer(
                found=True,
                data=base64.b64encode(data).decode(),
                next_offset=asked.offset + len(data),
                size_bytes=len(self.content),
            )
            .model_dump_json()
            .encode()
        )


async def test_serves_a_log_piece_by_piece(api: RunningApi, rin: httpx.AsyncClient, answering: Answering) -> None:
    job = (await api.submit(rin))["id"]
    log = _Log(b"caf\xc3\xa9\n\xff\x00end")
    await answering("watcher", "logs", log)
    piece = await rin.get(f"/v1/jobs/{job}/logs", params={"offset": 3, "limit": 4, "stream": "stderr"})
    assert (piece.content, piece.headers["tidegate-next-offset"], piece.headers["tidegate-size"]) == (
        log.content[3:7],
        "7",
        str(len(log.content)),
    )
    assert (log.asked[0].tenant, log.asked[0].job, log.asked[0].stream, log.asked[0].attempt) == (
        "acme",
        job,
        "stderr",
        1,
    )
    assert (await rin.get(f"/v1/jobs/{job}/logs", params={"attempt": 2})).status_code == 404
    assert (await rin.get(f"/v1/jobs/{job}/logs", params={"offset": -1})).status_code == 422


async def test_follows_a_log_until_the_job_has_ended_and_everything_was_read(
    api: RunningApi, rin: httpx.AsyncClient, answering: Answering
) -> None:
    job = (await api.submit(rin))["id"]
    log = _Log(b"one ")
    await answering("watcher", "logs", log)
    received = b""
    async with rin.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": "true"}) as response:
        async for chunk in response.aiter_raw():
            received += chunk
            if received == b"one ":
                log.content += b"two "
            elif received == b"one two ":
                log.content += b"three"
                await rin.post(f"/v1/jobs/{job}/stop")
    assert received == b"one two three"


async def test_says_which_service_does_not_answer_and_what_still_works(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient
) -> None:
    job = (await api.submit(rin))["id"]
    for client, path, service in (
        (rin, f"/v1/jobs/{job}/logs", "watcher"),
        (rin, f"/v1/jobs/{job}/outputs", "stager"),
        (rin, "/v1/usage", "metering"),
        (ada, "/v1/quotas", "gatekeeper"),
    ):
        response = await client.get(path)
        problem = response.json()
        assert (response.status_code, problem["service"]) == (503, service)
        assert problem["detail"].startswith(f"{service} does not answer, so ")
        assert "still work" in problem["detail"]


async def test_quotas_usage_and_dead_letters_come_from_their_services(
    api: RunningApi, rin: httpx.AsyncClient, ada: httpx.AsyncClient, answering: Answering
) -> None:
    asked: list[Any] = []

    def quotas(request: bytes) -> bytes:
        asked.append(orjson.loads(request))
        return orjson.dumps({"quotas": [{"tenant": "acme", "slots": 3, "gpus": None}]})

    await answering("gatekeeper", "quota_get", quotas)
    await answering("gatekeeper", "quota_set", quotas)
    row = {"tenant": "acme", "segments": 1, "gpu_milliseconds": 1250}
    await answering("metering", "usage", lambda request: orjson.dumps({"rows": [row]}))
    assert (await rin.get("/v1/quotas")).json()["quotas"][0]["slots"] == 3
    assert asked.pop() == {"tenant": "acme"}
    await ada.get("/v1/quotas")
    assert asked.pop() == {"tenant": None}
    assert (await ada.put("/v1/quotas/acme", json={"gpus": None})).json()["tenant"] == "acme"
    assert asked.pop() == {"tenant": "acme", "slots": None, "gpus": None, "fields": ["gpus"], "actor": "ada (acme)"}
    assert (await ada.put("/v1/quotas/acme", json={})).status_code == 422
    assert (await ada.put("/v1/quotas/nobody", json={"gpus": 1})).status_code == 404
    assert (await rin.get("/v1/quotas/umbra")).status_code == 403
    assert (await rin.get("/v1/usage")).json()["rows"][0]["gpu_seconds"] == "1.250"
    letters = (await ada.get("/v1/dead-letters")).json()
    assert letters["items"] == []
    assert set(letters["unreachable"]) == {"gatekeeper", "stager", "launcher", "watcher", "metering"}
    assert (await ada.get("/v1/dead-letters/api/7")).status_code == 404
    assert (await ada.post("/v1/dead-letters/launcher/7/retry")).status_code == 503


async def test_shows_and_retries_its_own_dead_letters(api: RunningApi, ada: httpx.AsyncClient) -> None:
    await api.send("gatekeeper", "facts.v1.gatekeeper.held", b"{}")

    async def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await ada.get("/v1/dead-letters")).json()["items"]
        return found

    (letter,) = await eventually(letters, "the letter to be parked")
    assert letter["service"] == "api"
    shown = (await ada.get(f"/v1/dead-letters/api/{letter['id']}")).json()
    assert shown["body"] == {}
    again = await ada.post(f"/v1/dead-letters/api/{letter['id']}/retry")
    assert (again.status_code, "it failed again" in again.json()["detail"]) == (409, True)
