"""The load: jobs of every kind, what each must come to, and a ledger in which each writes that it ran."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from shared.client.snapshot import pack

Kind = Literal["plain", "output", "files", "failing", "gpu", "stopped", "stopped_at_once", "refused"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_CALL_SECONDS: Final = 180
_LINE: Final = 'echo "$TIDEGATE_JOB_ID $TIDEGATE_ATTEMPT" >> "$0"; '
_GATE: Final = 'while [ ! -e "$0.open" ]; do sleep 0.1; done; '
_SCRIPTS: Final[Mapping[Kind, str]] = {
    "plain": "sleep $1",
    "output": 'sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt',
    "files": 'test "$(cat data/given.txt)" = given || exit 9; sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt',
    "failing": 'sleep $1; printf "$TIDEGATE_JOB_ID" > done.txt; exit 7',
    "gpu": "sleep $1",
    "stopped": "while :; do sleep 0.1; done",
    "stopped_at_once": "while :; do sleep 0.1; done",
    "refused": "true",
}


@dataclass(frozen=True)
class Wanted:
    """What a job must come to."""

    kind: Kind
    gpus: int

    @property
    def state(self) -> str:
        match self.kind:
            case "failing" | "refused":
                return "FAILED"
            case "stopped" | "stopped_at_once":
                return "STOPPED"
            case _:
                return "SUCCEEDED"

    @property
    def code(self) -> int | None:
        """Its exit code; None where a signal ends it, or it may never have begun."""
        match self.kind:
            case "failing":
                return 7
            case "stopped" | "stopped_at_once" | "refused":
                return None
            case _:
                return 0

    @property
    def reason(self) -> str | None:
        """Its end reason, where one of its own is to be said whatever was killed."""
        return "input_invalid" if self.kind == "refused" else None

    @property
    def files(self) -> int:
        """How many outputs come back."""
        return int(self.kind in ("output", "files", "failing"))

    @property
    def must_run(self) -> bool:
        """Only what was stopped at once may end without having run, and what was refused does."""
        return self.kind not in ("stopped_at_once", "refused")


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
        kinds: Sequence[Kind] = KINDS,
        gated: bool = False,
    ) -> None:
        """`seconds` is between which lengths the jobs work; where they are `gated`, after `open_the_gate`."""
        self.name = name
        self.ledger = ledger
        self.wanted: dict[str, Wanted] = {}
        self.requests = 0
        self._client = client
        self._rng = rng
        self._seconds = seconds
        self._kinds = kinds
        self._line = _LINE + _GATE if gated else _LINE
        self._to_stop: list[str] = []
        self._snapshot = self._uploaded()

    def submit(self, jobs: int) -> None:
        """Some of every kind, in any order; made again with the same key until the api has answered."""
        kinds = [self._kinds[number % len(self._kinds)] for number in range(jobs)]
        self._rng.shuffle(kinds)
        wanted = [Wanted(kind, self._rng.randint(1, 2) if kind == "gpu" else self._rng.randint(0, 1)) for kind in kinds]
        first = len(self.wanted)
        body = {"jobs": [self._request(first + number, one) for number, one in enumerate(wanted)]}
        self.requests += 1
        key = {"Idempotency-Key": f"{self.name} {self.requests}"}
        ids = self._answered(lambda: self._client.call("POST", "/v1/jobs/batch", json=body, headers=key))["ids"]
        for job, one in zip(ids, wanted, strict=True):
            self.wanted[job] = one
            if one.kind == "stopped_at_once":
                self._stop(job)
            elif one.kind == "stopped":
                self._to_stop.append(job)

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

    def usage(self) -> dict[str, int]:
        """GPU milliseconds by job, as users see them."""
        answer = self._answered(lambda: self._client.call("GET", "/v1/usage", params={"group_by": "job"}))
        return {row["job"]: row["gpu_milliseconds"] for row in answer["rows"]}

    @property
    def jobs(self) -> Sequence[str]:
        return list(self.wanted)

    def _stop(self, job: str) -> None:
        body = {"grace_seconds": 5} if self._rng.random() < 0.5 else {}
        self._answered(lambda: self._client.call("POST", f"/v1/jobs/{job}/stop", json=body), done=httpx.codes.CONFLICT)

    def _request(self, number: int, wanted: Wanted) -> dict[str, Any]:
        script = self._line + _SCRIPTS[wanted.kind]
        seconds = f"{self._rng.uniform(*self._seconds):.2f}"
        spec = {"command": ["sh", "-c", script, str(self.ledger), seconds], "gpus": wanted.gpus}
        if wanted.files:
            spec["outputs"] = ["done.txt"]
        if wanted.kind == "files":
            spec |= {"snapshot": self._snapshot, "inputs": ["data/given.txt"]}
        if wanted.kind == "refused":
            spec |= {"snapshot": self._snapshot, "inputs": ["data/gvien.txt"]}
        return {"name": f"{self.name}-{number}", "spec": spec}

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
