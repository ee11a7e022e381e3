"""The typed Python SDK over the HTTP API: one method per route, errors as sentences.

>>> with Tidegate(find_endpoint()) as tidegate:
...     job = tidegate.submit(SubmitRequest(spec=JobSpec(command=("true",))))
...     print(tidegate.wait(job.id).state)
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx

from shared.client.endpoint import Endpoint
from shared.client.errors import ClientError, NoServer, Refused, Unavailable
from shared.client.sse import ServerEvent, read_events
from shared.client.views import JobPage, JobView, PipelinePage, PipelineView
from shared.contracts.queries import Manifest, OutputFile
from shared.contracts.spec import PipelineRequest, SubmitRequest
from shared.lifecycle.explain import Explanation

Progress = Callable[[int], None]
_CHUNK_BYTES = 256 * 1024
_RECONNECTS = 20


class Tidegate:
    """A connection to one server with one token. Not shared between threads."""

    def __init__(self, endpoint: Endpoint, *, admin: bool = False, timeout_seconds: float = 30) -> None:
        self.endpoint = endpoint
        token = endpoint.admin_token if admin and endpoint.admin_token else endpoint.token
        self._http = httpx.Client(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_seconds, connect=5),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    # -- jobs

    def submit(self, request: SubmitRequest, *, idempotency_key: str | None = None) -> JobView:
        """Submit one job; the same key and request again give the same job."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = request.model_dump(mode="json", exclude_defaults=True)
        return JobView.model_validate(self.call("POST", "/v1/jobs", json=body, headers=headers))

    def submit_batch(self, requests: Sequence[SubmitRequest]) -> list[str]:
        """Submit many jobs in one transaction; their ids in the order given."""
        body = {"jobs": [request.model_dump(mode="json", exclude_defaults=True) for request in requests]}
        return list(self.call("POST", "/v1/jobs/batch", json=body)["ids"])

    def job(self, job_id: str) -> JobView:
        return JobView.model_validate(self.call("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, *, state: str | None = None, limit: int = 50, cursor: str | None = None) -> JobPage:
        """One page, newest first."""
        params = {"state": state, "limit": limit, "cursor": cursor}
        return JobPage.model_validate(self.call("GET", "/v1/jobs", params={k: v for k, v in params.items() if v}))

    def command(self, job_id: str, action: str, body: dict[str, Any] | None = None) -> JobView:
        """stop, pause, resume, retry, hold or release; the job after it. `Refused` carries the sentence why not."""
        return JobView.model_validate(self.call("POST", f"/v1/jobs/{job_id}/{action}", json=body or {}))

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended; one that was deleted already is deleted."""
        self.call("DELETE", f"/v1/jobs/{job_id}")

    def explain(self, job_id: str) -> Explanation:
        """Why it is where it is, what was seen of it, what comes next, and what it has cost."""
        return Explanation.model_validate(self.call("GET", f"/v1/jobs/{job_id}/explain"))

    def wait(self, job_id: str) -> JobView:
        """Return once the job has ended."""
        for _ in self.events(f"/v1/jobs/{job_id}/events"):
            pass
        return self.job(job_id)

    # -- pipelines

    def submit_pipeline(self, request: PipelineRequest, *, idempotency_key: str | None = None) -> PipelineView:
        """Submit jobs that run one after the other; the same key and request again give the same pipeline."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = request.model_dump(mode="json", exclude_defaults=True)
        return PipelineView.model_validate(self.call("POST", "/v1/pipelines", json=body, headers=headers))

    def pipeline(self, pipeline_id: str) -> PipelineView:
        return PipelineView.model_validate(self.call("GET", f"/v1/pipelines/{pipeline_id}"))

    def pipelines(self, *, limit: int = 50, cursor: str | None = None) -> PipelinePage:
        """One page, newest first."""
        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return PipelinePage.model_validate(self.call("GET", "/v1/pipelines", params=params))

    def command_pipeline(self, pipeline_id: str, action: str, body: dict[str, Any] | None = None) -> PipelineView:
        """stop, pause, resume or retry, of the pipeline as one; the pipeline after it."""
        return PipelineView.model_validate(self.call("POST", f"/v1/pipelines/{pipeline_id}/{action}", json=body or {}))

    def wait_pipeline(self, pipeline_id: str) -> PipelineView:
        """Return once every step has ended."""
        for step in self.pipeline(pipeline_id).steps:
            self.wait(step.job)
        return self.pipeline(pipeline_id)

    # -- streams

    def events(self, path: str, *, after: str | None = None) -> Iterator[ServerEvent]:
        """The events of a stream after the id `after` until the server ends it; a broken connection is taken up where
        it broke."""
        last_id = after
        broken = 0
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
            try:
                with self._stream("GET", path, headers=headers, read_seconds=60) as response:
                    for event in read_events(response.iter_lines()):
                        broken = 0
                        last_id = event.id or last_id
                        yield event
                return
            except NoServer as error:
                broken += 1
                if broken > _RECONNECTS:
                    raise NoServer(f"the stream {path} broke {broken} times in a row: {error}") from None
                time.sleep(min(0.1 * broken, 1.0))

    def logs(
        self, job_id: str, *, stream: str = "stdout", follow: bool = False, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The bytes of a log in chunks, of the current attempt where none is named; with `follow` until the job has
        ended, one attempt after the other, or until the named attempt has."""
        params = {"stream": stream, "follow": "true" if follow else "false"}
        params |= {} if attempt is None else {"attempt": str(attempt)}
        offset = 0
        while True:
            with self._stream(
                "GET", f"/v1/jobs/{job_id}/logs", params=params | {"offset": str(offset)}, read_seconds=None
            ) as response:
                received = 0
                for chunk in response.iter_raw():
                    received += len(chunk)
                    yield chunk
            offset += received
            if follow or received == 0 or offset >= int(response.headers.get("Tidegate-Size", offset)):
                return

    # -- blobs

    def upload_snapshot(self, digest: str, source: BinaryIO, size_bytes: int, progress: Progress) -> bool:
        """Send a snapshot unless the server has it; whether anything was sent."""
        if self._send("HEAD", f"/v1/snapshots/{digest}").status_code == httpx.codes.OK:
            return False

        def chunks() -> Iterator[bytes]:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
                progress(len(chunk))

        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/gzip"}
        self.call("PUT", f"/v1/snapshots/{digest}", content=chunks(), headers=headers)
        return True

    def outputs(self, job_id: str) -> Manifest:
        return Manifest.model_validate(self.call("GET", f"/v1/jobs/{job_id}/outputs"))

    def download_output(self, job_id: str, file: OutputFile, root: Path, progress: Progress) -> Path:
        """Fetch one output below `root`: under a temporary name first, its sha256 checked, then renamed. Its mode and
        time are kept.

        Links in `root` that lead out of it are not followed. Raises OSError where a file cannot be written."""
        target = root / file.path
        real = (target if file.kind == "directory" else target.parent).resolve()
        if file.path.startswith("/") or ".." in file.path.split("/") or not real.is_relative_to(root.resolve()):
            raise ClientError(f"the output {file.path!r} would be written outside {root}: it was not fetched")
        if file.kind == "directory":
            target.mkdir(parents=True, exist_ok=True)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{file.sha256.removeprefix('sha256:')[:32]}.part")
        part.unlink(missing_ok=True)  # whatever lies there, a link too: it would be written through
        try:
            self._download(job_id, file, part, progress)
            part.chmod(file.mode & 0o777)
            if file.modified_ns is not None:
                os.utime(part, ns=(file.modified_ns, file.modified_ns))
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def _download(self, job_id: str, file: OutputFile, part: Path, progress: Progress) -> None:
        path = f"/v1/jobs/{job_id}/outputs/{quote(file.path, safe='/')}"
        digest = hashlib.sha256()
        with self._stream("GET", path, read_seconds=60) as response, part.open("xb") as out:
            for chunk in response.iter_raw():
                digest.update(chunk)
                out.write(chunk)
                progress(len(chunk))
        if digest.hexdigest() != file.sha256.removeprefix("sha256:"):
            raise ClientError(f"{file.path!r} arrived with other content than its manifest says: fetch it again")

    # -- plumbing

    def call(self, method: str, path: str, **request: Any) -> Any:
        """One request and its JSON answer; a refusal is raised as the server's sentence."""
        response = self._send(method, path, **request)
        _raise_for(response)
        return response.json() if response.content else None

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    @contextmanager
    def _stream(
        self, method: str, path: str, *, read_seconds: float | None, **request: Any
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(30, connect=5, read=read_seconds)
        try:
            with self._http.stream(method, path, timeout=timeout, **request) as response:
                if response.is_error:
                    response.read()
                    _raise_for(response)
                yield response
        except httpx.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx.TransportError as error:
            raise NoServer(f"the connection to {self.endpoint.url} broke: {error}; give the command again") from None

    def _unreachable(self, error: httpx.TransportError) -> NoServer:
        return NoServer(
            f"cannot reach {self.endpoint.url} (from {self.endpoint.origin}): {error}; "
            "is the stack up? `tidegate ps` shows it, `tidegate up --detach` starts it"
        )


def _raise_for(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        problem = response.json()
        title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        title, detail = response.reason_phrase, response.text[:500]
    if response.status_code in (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT):
        raise Unavailable(detail or title or "the server cannot answer now: try again")
    raise Refused(response.status_code, title, detail)
