"""The typed Python SDK over the HTTP API: one method per route, errors as sentences.

>>> with Tidegate(find_endpoint()) as tidegate:
...     job = tidegate.submit(SubmitRequest(spec=JobSpec(command=("true",))))
...     print(tidegate.wait(job.id).state)
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import httpx

from shared.client.errors import ClientError, NoServer
from shared.client.streams import Streams
from shared.client.views import JobPage, JobView, PipelinePage, PipelineView
from shared.contracts.queries import Manifest, OutputFile
from shared.contracts.spec import PipelineRequest, SubmitRequest
from shared.lifecycle.explain import Explanation

Progress = Callable[[int], None]
_CHUNK_BYTES = 256 * 1024


class Tidegate(Streams):
    """A connection to one server with one token. Not shared between threads."""

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

    def job(self, job_id: str, *, patient: bool = False) -> JobView:
        return JobView.model_validate(self.call("GET", f"/v1/jobs/{job_id}", patient=patient))

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
        """Return once the job has ended, through restarts of the server."""
        while not (job := self.job(job_id, patient=True)).ended:
            for _ in self.events(job=job_id, after=f"{job.epoch}-{job.seq}"):
                pass
        return job

    # -- pipelines

    def submit_pipeline(self, request: PipelineRequest, *, idempotency_key: str | None = None) -> PipelineView:
        """Submit jobs that run one after the other; the same key and request again give the same pipeline."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = request.model_dump(mode="json", exclude_defaults=True)
        return PipelineView.model_validate(self.call("POST", "/v1/pipelines", json=body, headers=headers))

    def pipeline(self, pipeline_id: str, *, patient: bool = False) -> PipelineView:
        return PipelineView.model_validate(self.call("GET", f"/v1/pipelines/{pipeline_id}", patient=patient))

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
        return self.pipeline(pipeline_id, patient=True)

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
        try:
            with self._stream("GET", path, read_seconds=60) as response, part.open("xb") as out:
                for chunk in response.iter_raw():
                    digest.update(chunk)
                    out.write(chunk)
                    progress(len(chunk))
        except NoServer as error:
            raise NoServer(f"{error}; give the command again") from None
        if digest.hexdigest() != file.sha256.removeprefix("sha256:"):
            raise ClientError(f"{file.path!r} arrived with other content than its manifest says: fetch it again")
