"""Jobs and pipelines that a person does things to, and the ledger in which each writes all that its command does."""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from shared.client.snapshot import pack

T = TypeVar("T")
Kind = Literal["plain", "saving", "stubborn", "leaving", "failing"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FAILS_WITH: Final = 7
_SNAPSHOTS: Final = 3
_GRACE_SECONDS: Final = 1
_CALL_SECONDS: Final = 240

# A lock that all of a command holds, so that the next attempt sees whether anything of an earlier one lives.
_BEGIN: Final = r"""
say() { printf '%s %s %s %s %s %s\n' "$1" "$TIDEGATE_JOB_ID" "$TIDEGATE_ATTEMPT" "$TIDEGATE_SUBMISSION" \
    "$(date +%s.%N)" "$2" >> "$0"; }
exec 9>> "$0.$TIDEGATE_JOB_ID"
flock -n 9 || say overlapped $$
say began $$
say found "=$(cat done.txt 2> /dev/null)"
printf '%s.%s,' "$TIDEGATE_JOB_ID" "$TIDEGATE_ATTEMPT" >> done.txt
say wrote $$
"""
_END: Final = "\nsay ended $$\n"
_WORK: Final[Mapping[Kind, str]] = {
    "plain": 'sleep "$1"',
    "saving": """trap 'say saved $$; exit 0' TERM; sleep "$1" & wait $!""",
    "stubborn": """trap '' TERM; sleep "$1" """,
    "leaving": '(setsid sleep 3600 > /dev/null 2>&1 &); sleep "$1"',
    "failing": 'sleep "$1"',
}
"""What each does for as long as its first argument says: one saves what it has, one hears no SIGTERM, one leaves a
process behind that has run away from its group."""


@dataclass(frozen=True)
class Made:
    """A job as it was submitted."""

    kind: Kind
    gpus: int
    before: tuple[str, ...] = ()
    """The steps of its pipeline before it."""
    pipeline: str | None = None


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

    def __init__(self, client: Tidegate, ledger: Path, name: str, rng: random.Random) -> None:
        self.name = name
        self.ledger = ledger
        self.made: dict[str, Made] = {}
        self.pipelines: dict[str, tuple[str, ...]] = {}
        """The steps of each, in their order."""
        self._client = client
        self._rng = rng
        self._requests = 0
        self._numbers = itertools.count()
        self._snapshots = [self._uploaded(f"{name} {number}\n") for number in range(_SNAPSHOTS)]

    def submit(self, jobs: int, pipelines: int) -> None:
        """So many of each, of any kind."""
        alone = [self._any() for _ in range(jobs)]
        ids = self._send("/v1/jobs/batch", {"jobs": [self._request(one) for one in alone]})["ids"] if alone else []
        self.made |= dict(zip(ids, alone, strict=True))
        for _ in range(pipelines):
            self._submit_pipeline()

    def _submit_pipeline(self) -> None:
        given = [self._any() for _ in range(self._rng.choice((2, 2, 3)))]
        steps = [self._request(one) for one in given]
        for step in steps[1:]:
            step["spec"]["inputs"] = ["done.txt"]
        view = self._send("/v1/pipelines", {"name": self.name, "steps": steps})
        ids = tuple(step["job"] for step in view["steps"])
        for number, (job, one) in enumerate(zip(ids, given, strict=True)):
            self.made[job] = Made(one.kind, one.gpus, ids[:number], view["id"])
        self.pipelines[view["id"]] = ids

    def _any(self) -> Made:
        return Made(self._rng.choice((*KINDS, "plain", "saving")), self._rng.choice((0, 0, 1, 2)))

    def _request(self, made: Made) -> dict[str, Any]:
        seconds = f"{self._rng.choice((0.1, 0.5, 1.0, 2.0)) * self._rng.uniform(0.5, 1.5):.2f}"
        end = f"{_END}exit {FAILS_WITH if made.kind == 'failing' else 0}\n"
        spec: dict[str, Any] = {
            "command": ["sh", "-c", f"{_BEGIN}{_WORK[made.kind]}{end}", str(self.ledger), seconds],
            "gpus": made.gpus,
            "outputs": ["done.txt"],
            "stop_grace_seconds": _GRACE_SECONDS,
            "checkpoint_grace_seconds": _GRACE_SECONDS,
        }
        number = next(self._numbers)
        if number < len(self._snapshots):
            spec["snapshot"] = self._snapshots[number]  # each is named by a job
        elif self._rng.random() < 0.6:
            spec["snapshot"] = self._rng.choice(self._snapshots)
        return {"name": f"{self.name}-{number}", "spec": spec}

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
