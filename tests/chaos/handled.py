"""Jobs, pipelines and workstations that a person does things to, and the ledger in which each writes what it does."""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from shared.client.snapshot import pack
from tests.chaos.made import IDLE_SECONDS, KINDS, Made, Variety

T = TypeVar("T")
_SNAPSHOTS: Final = 3
_GRACE_SECONDS: Final = 1
_CALL_SECONDS: Final = 240


class Line(NamedTuple):
    """One line of the ledger."""

    word: str
    job: str
    attempt: int
    submission: str
    at: float
    rest: str


class Handled:
    """The jobs of one history."""

    def __init__(self, client: Tidegate, ledger: Path, name: str, rng: random.Random, variety: Variety) -> None:
        self.name = name
        self.ledger = ledger
        self.made: dict[str, Made] = {}
        self.pipelines: dict[str, tuple[str, ...]] = {}
        """The steps of each, in their order."""
        self._client = client
        self._rng = rng
        self._variety = variety
        self._requests = 0
        self._numbers = itertools.count()
        self._snapshots = [self._uploaded(f"{name} {number}\n") for number in range(_SNAPSHOTS)]

    @property
    def desks(self) -> list[str]:
        """The workstations."""
        return [job for job, made in self.made.items() if made.is_desk]

    def submit(self, jobs: int, pipelines: int, desks: int = 0) -> None:
        """So many of each, of any kind; no more workstations than there may be."""
        alone = [self._any() for _ in range(jobs)]
        ids = self._send("/v1/jobs/batch", {"jobs": [self._request(one) for one in alone]})["ids"] if alone else []
        self.made |= dict(zip(ids, alone, strict=True))
        for _ in range(pipelines):
            self._submit_pipeline()
        for kind in self._rng.sample(self._variety.desks, min(desks, self._variety.most_desks - len(self.desks))):
            made = Made(kind, self._rng.choice((0, 0, 1)))
            self.made[self._send("/v1/workstations", self._desk(made))["id"]] = made

    def _submit_pipeline(self) -> None:
        given = [self._any() for _ in range(self._rng.choice((2, 2, 3)))]
        steps = [self._request(one) for one in given]
        for step in steps[1:]:
            step["spec"]["inputs"] = ["done.txt"]
        view = self._send("/v1/pipelines", {"name": self.name, "steps": steps})
        ids = tuple(step["job"] for step in view["steps"])
        for number, (job, one) in enumerate(zip(ids, given, strict=True)):
            self.made[job] = replace(one, before=ids[:number], pipeline=view["id"])
        self.pipelines[view["id"]] = ids

    def _any(self) -> Made:
        kind = self._rng.choice((*KINDS, "saving", "flaky"))
        retries = self._rng.choice(self._variety.retries) if kind in ("failing", "flaky") else 0
        return Made(kind, self._rng.choice((0, 0, 1, 2)), retries)

    def _request(self, made: Made) -> dict[str, Any]:
        seconds = self._rng.choice((0.1, 0.5, 1.0, 2.0)) * self._rng.uniform(0.5, 1.5)
        spec: dict[str, Any] = {
            "command": made.command(str(self.ledger), seconds),
            "gpus": made.gpus,
            "outputs": ["done.txt"],
            "stop_grace_seconds": _GRACE_SECONDS,
            "checkpoint_grace_seconds": _GRACE_SECONDS,
        }
        number = next(self._numbers)
        return {
            "name": f"{self.name}-{number}",
            "spec": spec | self._working_directory(number),
            "retries": made.retries,
        }

    def _desk(self, made: Made) -> dict[str, Any]:
        number = next(self._numbers)
        asked = {
            "command": made.command(str(self.ledger), 0),
            "name": f"{self.name}-{number}",
            "gpus": made.gpus,
            "idle_suspend_seconds": IDLE_SECONDS.get(made.kind),
            "max_lifetime_seconds": made.lifetime_seconds,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return given | self._working_directory(number)

    def _working_directory(self, number: int) -> dict[str, str]:
        if number < len(self._snapshots):
            return {"snapshot": self._snapshots[number]}  # each is named by a job
        return {"snapshot": self._rng.choice(self._snapshots)} if self._rng.random() < 0.6 else {}

    def _send(self, path: str, body: Mapping[str, Any]) -> Any:
        self._requests += 1
        key = {"Idempotency-Key": f"{self.name} {self._requests}"}
        return patiently(lambda: self._client.call("POST", path, json=body, headers=key))

    def _uploaded(self, text: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "given.txt").write_text(text)
            with pack(folder) as snapshot:

                def send() -> str:
                    snapshot.file.seek(0)
                    self._client.upload_snapshot(snapshot.digest, snapshot.file, snapshot.size_bytes, lambda _: None)
                    return snapshot.digest

                return patiently(send)

    def lines(self) -> list[Line]:
        """What the jobs wrote, in its order."""
        found = []
        for text in self.ledger.read_text().splitlines():
            word, job, attempt, submission, at, rest = text.split(" ", 5)
            found.append(Line(word, job, int(attempt), submission, float(at), rest))
        return found

    def processes(self) -> Iterator[tuple[str, int, int]]:
        """(job, attempt, pid) of every process of these jobs, by their environment."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                variables = (entry / "environ").read_bytes()
            except OSError:
                continue  # it ended while we looked, or is another user's
            if b"TIDEGATE_JOB_ID=" not in variables:
                continue
            named = dict(one.partition(b"=")[::2] for one in variables.split(b"\0"))
            job = named[b"TIDEGATE_JOB_ID"].decode()
            if job in self.made:
                yield job, int(named[b"TIDEGATE_ATTEMPT"]), int(entry.name)


def patiently(request: Callable[[], T]) -> T:
    """Made again until an api answers: replicas are killed and frozen in the middle of requests."""
    deadline = time.monotonic() + _CALL_SECONDS
    while True:
        try:
            return request()
        except (NoServer, Unavailable):
            assert time.monotonic() < deadline, f"no api answered in {_CALL_SECONDS} s"
            time.sleep(0.05)
        except Refused as refused:
            if refused.status < httpx.codes.INTERNAL_SERVER_ERROR:
                raise
            raise AssertionError(f"the api failed: {refused}") from refused
