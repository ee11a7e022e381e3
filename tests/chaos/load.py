"""The load: jobs and pipelines of every kind, and a ledger in which each job writes that it ran."""

import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from shared.client.snapshot import pack
from tests.chaos.wanted import CHAINS, KINDS, SCRIPTS, Alone, Step, Wanted

_CALL_SECONDS: Final = 180
_LINE: Final = 'echo "$TIDEGATE_JOB_ID $TIDEGATE_ATTEMPT" >> "$0"; '
_GATE: Final = 'while [ ! -e "$0.open" ]; do sleep 0.1; done; '
_JOBS_FOR_A_PIPELINE: Final = 8
"""Of so many jobs some are the steps of a pipeline."""


class Load:
    """Jobs of one history. `drive` has to be called again and again: it stops those that are to be stopped."""

    def __init__(
        self,
        client: Tidegate,
        ledger: Path,
        name: str,
        rng: random.Random,
        *,
        seconds: tuple[float, float] = (0.05, 0.8),
        kinds: Sequence[Alone] = KINDS,
        gated: bool = False,
    ) -> None:
        """`seconds` is between which lengths the jobs work; where they are `gated`, after `open_the_gate`."""
        self.name = name
        self.ledger = ledger
        self.wanted: dict[str, Wanted] = {}
        self.pipelines: dict[str, tuple[str, ...]] = {}
        """The jobs that are a pipeline's steps, in their order."""
        self.requests = 0
        self._client = client
        self._rng = rng
        self._seconds = seconds
        self._kinds = itertools.cycle(kinds)
        self._chains = itertools.cycle(rng.sample(CHAINS, len(CHAINS)))
        self._numbers = itertools.count()
        self._line = _LINE + _GATE if gated else _LINE
        self._to_stop: list[str] = []
        self._snapshot = self._uploaded()

    def submit(self, jobs: int) -> None:
        """So many, some of every kind and some as pipelines, in any order; made again with the same key until the api
        has answered."""
        chains = [next(self._chains) for _ in range(max(1, round(jobs / _JOBS_FOR_A_PIPELINE)))]
        kinds = [next(self._kinds) for _ in range(jobs - sum(map(len, chains)))]
        self._rng.shuffle(kinds)
        for chain in chains:
            self._submit_pipeline(chain)
        self._submit_alone(kinds)

    def _submit_alone(self, kinds: Sequence[Alone]) -> None:
        wanted = [Wanted(kind, self._rng.randint(1, 2) if kind == "gpu" else self._rng.randint(0, 1)) for kind in kinds]
        ids = self._made("/v1/jobs/batch", {"jobs": [self._request(one) for one in wanted]})["ids"]
        for job, one in zip(ids, wanted, strict=True):
            self.wanted[job] = one
            if one.kind == "stopped_at_once":
                self._stop(job)
            elif one.kind == "stopped":
                self._to_stop.append(job)

    def _submit_pipeline(self, chain: Sequence[Step]) -> None:
        """Its steps take as long together as a job alone."""
        wanted = [Wanted(kind, self._rng.randint(0, 1)) for kind in chain]
        steps = [self._request(one, parts=len(chain)) for one in wanted]
        for step in steps[1:]:
            step["spec"]["inputs"] = ["done.txt"]
        made = self._made("/v1/pipelines", {"name": self.name, "steps": steps})
        jobs = tuple(step["job"] for step in made["steps"])
        self.pipelines[made["id"]] = jobs
        for number, (job, one) in enumerate(zip(jobs, wanted, strict=True)):
            self.wanted[job] = replace(one, after=jobs[:number])

    def _made(self, path: str, body: Mapping[str, Any]) -> Any:
        self.requests += 1
        key = {"Idempotency-Key": f"{self.name} {self.requests}"}
        return self._answered(lambda: self._client.call("POST", path, json=body, headers=key))

    def connect(self, client: Tidegate) -> None:
        """Go on with another client: the address may have changed."""
        self._client = client

    def open_the_gate(self) -> None:
        """Let jobs that have begun go on."""
        self.ledger.with_name(f"{self.ledger.name}.open").touch()

    def drive(self) -> None:
        """Stop what is to be stopped and has written its line."""
        if self._to_stop:
            ran = {line.split()[0] for line in self.lines()}
            for job in [job for job in self._to_stop if job in ran]:
                self._stop(job)
                self._to_stop.remove(job)

    def lines(self) -> list[str]:
        """What the jobs of this history wrote: `<job> <attempt>`."""
        return self.ledger.read_text().splitlines()

    def ran(self) -> Counter[str]:
        """How often each attempt ran."""
        return Counter(self.lines())

    def usage(self, jobs: Iterable[str]) -> dict[str, int]:
        """GPU milliseconds of these jobs as users see them: all are listed at once as long as the list is not cut."""
        answer = self._asked("/v1/usage", group_by="job")
        rows = {row["job"]: row for row in answer["rows"]}
        if answer["rest"] is not None:
            for job in set(jobs) - set(rows):
                found = self._asked("/v1/usage", group_by="job", job=job)["rows"]
                rows |= {row["job"]: row for row in found}
        return {job: rows[job]["gpu_milliseconds"] for job in jobs if job in rows}

    def words(self) -> dict[str, str]:
        """The word of each pipeline, as users see it."""
        return {pipeline: self._asked(f"/v1/pipelines/{pipeline}")["word"] for pipeline in self.pipelines}

    def _asked(self, path: str, **params: str) -> Any:
        return self._answered(lambda: self._client.call("GET", path, params=params))

    @property
    def jobs(self) -> Sequence[str]:
        return list(self.wanted)

    def _stop(self, job: str) -> None:
        body = {"grace_seconds": 5} if self._rng.random() < 0.5 else {}
        self._answered(lambda: self._client.call("POST", f"/v1/jobs/{job}/stop", json=body), done=httpx.codes.CONFLICT)

    def _request(self, wanted: Wanted, *, parts: int = 1) -> dict[str, Any]:
        script = self._line + SCRIPTS[wanted.kind]
        seconds = f"{self._rng.uniform(*self._seconds) / parts:.2f}"
        spec = {"command": ["sh", "-c", script, str(self.ledger), seconds], "gpus": wanted.gpus}
        if wanted.files or wanted.is_step:
            spec["outputs"] = ["done.txt"]
        if wanted.kind == "files":
            spec |= {"snapshot": self._snapshot, "inputs": ["data/given.txt"]}
        if wanted.kind == "refused":
            spec |= {"snapshot": self._snapshot, "inputs": ["data/gvien.txt"]}
        return {"name": f"{self.name}-{next(self._numbers)}", "spec": spec}

    def _uploaded(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "data" / "given.txt"
            file.parent.mkdir()
            file.write_text("given\n")
            with pack(folder) as snapshot:

                def send() -> str:
                    snapshot.file.seek(0)
                    self._client.upload_snapshot(snapshot.digest, snapshot.file, snapshot.size_bytes, lambda _: None)
                    return snapshot.digest

                return str(self._answered(send))

    def _answered(self, request: Callable[[], Any], *, done: int | None = None) -> Any:
        """Made again until an api answers: replicas are killed and frozen in the middle of requests. `done` is the
        refusal that says that an earlier try arrived."""
        deadline = time.monotonic() + _CALL_SECONDS
        while True:
            try:
                return request()
            except (NoServer, Unavailable):
                assert time.monotonic() < deadline, f"no api answered in {_CALL_SECONDS} s"
                time.sleep(0.05)
            except Refused as refused:
                if refused.status == done:
                    return None
                raise AssertionError(f"a request was refused: {refused}") from refused


@contextmanager
def a_ledger() -> Iterator[Path]:
    """A file that every tenant's uid may append to, in a folder that a job's view of the file system shows."""
    with tempfile.TemporaryDirectory(prefix="tidegate-ledger-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        file = Path(folder) / "ran.txt"
        file.touch()
        file.chmod(0o666)
        yield file
