"""A local backend with a host of its own, and words for what the tests do with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shared.backends.local import layout, processes
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk, KillKind, LaunchAnswer, LaunchKind, LaunchRequest
from shared.backends.local.names import submission_name
from shared.backends.local.observer import LocalState, Observer, Seen
from shared.runtime import failpoints
from tests.patience import PATIENCE_SECONDS

TENANT = "acme"
REPOSITORY = Path(__file__).parents[4]
AS_ROOT = os.geteuid() == 0


async def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition()` is true; fail saying `what` was awaited."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.005)


class Failpoints:
    """A folder of orders to processes that pass named places."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "obeyed"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process look for orders."""
        return {failpoints.FOLDER: str(self.folder)}

    def arm(self, place: str, order: str = "kill") -> None:
        """`place` is `<service>.<point>`. Whole or not at all: who passes reads it at any moment."""
        written = self.folder / place
        written.write_text(order)
        written.rename(self.folder / "armed" / place)

    def obeyed(self, place: str) -> int | None:
        """The process that has obeyed, if one has."""
        found = next((self.folder / "obeyed").glob(f"{place}.*"), None)
        return None if found is None else int(found.name.rpartition(".")[2])

    async def until_obeyed(self, place: str) -> int:
        """Wait for it; the process."""
        await eventually(lambda: self.obeyed(place) is not None, f"somebody passes {place}")
        pid = self.obeyed(place)
        assert pid is not None
        return pid


class Backend:
    """One root, one host process at a time, a client and an observer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client = LocalClient(root)
        self.observer = Observer(self.client.root)
        self.host: subprocess.Popen[bytes] | None = None
        self.log = root.parent / "host.log"
        self.failpoints: Failpoints | None = None

    def use_failpoints(self) -> Failpoints:
        """Hosts that are started from now on obey orders."""
        self.failpoints = Failpoints(self.root.parent / "failpoints")
        return self.failpoints

    async def start_host(self, *options: str, through: Sequence[str] = ()) -> None:
        """Returns when it answers. `through` is a program that sets something up and then becomes the host."""
        environment = os.environ | ({} if self.failpoints is None else self.failpoints.environment)
        with self.log.open("ab") as log:
            command = [*through, sys.executable, "-m", "shared.backends.local.host", "--root", str(self.root), *options]
            self.host = subprocess.Popen(  # noqa: ASYNC220 - it is waited for below
                command, stderr=log, cwd=REPOSITORY, env=environment
            )
        await self._host_answers(self.host)

    async def _host_answers(self, host: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert host.poll() is None, f"the host ended: {self.log.read_text()}"
            try:
                status = await self.client.status()
            except CouldNotAsk:
                assert time.monotonic() < deadline, f"the host gives no answer: {self.log.read_text()}"
                await asyncio.sleep(0.01)
                continue
            assert status.host is not None
            assert status.host.pid == host.pid
            return

    def kill_host(self) -> None:
        """SIGKILL, as a crash would."""
        self.end_host(signal.SIGKILL)

    def end_host(self, signal_number: int = signal.SIGTERM) -> None:
        """Signal it and wait for its end."""
        if self.host is not None:
            self.host.send_signal(signal_number)
            self.host.wait(PATIENCE_SECONDS)
            self.host = None

    async def end(self) -> None:
        """Leave no process behind."""
        for seen in self.observer.observe().submissions:
            answer = await self.client.kill(seen.submission)
            assert answer.kind is not KillKind.UNCLEAR, answer
        self.end_host()

    async def request(
        self,
        job: str,
        *command: str,
        attempt: int = 1,
        tenant: str = TENANT,
        token: str = "t1",
        gpus: int = 0,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        time_limit_seconds: int | None = None,
        not_after: datetime | None = None,
        stage: bool = True,
        **how: Any,
    ) -> LaunchRequest:
        """A launch whose working directory `e1` is staged with `files`."""
        directory = await self.client.make_attempt_directory(tenant, job, attempt)
        if stage:
            (directory / "e1").mkdir(exist_ok=True)
            for name, text in (files or {}).items():
                (directory / "e1" / name).write_text(text)
        return LaunchRequest(
            submission=submission_name("test", job, attempt, token),
            tenant=tenant,
            run=job,
            directory="e1",
            command=command,
            environment=environment or {},
            gpus=gpus,
            time_limit_seconds=time_limit_seconds,
            not_after=not_after,
            **how,
        )

    async def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """The answer to one launch."""
        (answer,) = await self.client.launch([request])
        return answer

    async def submit(self, request: LaunchRequest) -> str:
        """Launch it, see it accepted, and return its submission."""
        answer = await self.launch(request)
        assert answer.kind is LaunchKind.ACCEPTED, answer
        return request.submission

    def seen(self, submission: str) -> Seen | None:
        """What an observation shows of it."""
        observation = self.observer.observe()
        assert observation.complete, observation.problem
        return next((seen for seen in observation.submissions if seen.submission == submission), None)

    async def until(self, submission: str, state: LocalState) -> Seen:
        """Wait for an observation in that state."""

        def reached() -> bool:
            seen = self.seen(submission)
            return seen is not None and seen.state is state

        await eventually(reached, f"{submission} {state}; it is {self.seen(submission)}")
        seen = self.seen(submission)
        assert seen is not None
        return seen

    async def run(self, request: LaunchRequest) -> Seen:
        """Launch it and wait for the record of its end."""
        return await self.until(await self.submit(request), LocalState.EXITED)

    async def started(self, request: LaunchRequest, file: str = "ready") -> Seen:
        """Launch it and wait until its command has written `file` into its working directory."""
        seen = await self.until(await self.submit(request), LocalState.RUNNING)
        path = self.directory(request) / file
        await eventually(path.exists, f"{path} is written")
        return seen

    def directory(self, request: LaunchRequest) -> Path:
        """Its working directory."""
        _, job, attempt, _ = request.submission.split(".")
        return Path(layout.attempt_directory(self.client.root, request.tenant, job, int(attempt[1:]))) / "e1"

    def output(self, request: LaunchRequest, stream: str = "stdout") -> str:
        """What it has printed."""
        return (self.directory(request).parent / "logs" / stream).read_text()

    def record(self, submission: str, kind: str) -> Path:
        """Where one of its records lies."""
        return Path(layout.record_path(self.client.root, submission, kind))

    def supervisor_pid(self, submission: str) -> int:
        """From the claim."""
        return int(json.loads(self.record(submission, layout.CLAIM).read_text())["supervisor"]["pid"])


@dataclass(frozen=True)
class Round:
    """Supervisors of these requests let go at once; the attempt revoked that long after, if at all."""

    requests: Sequence[LaunchRequest]
    revoke_after_microseconds: int | None = None


async def supervise(backend: Backend, *rounds: Round) -> list[bool | None]:
    """Run the rounds one after the other, without a host; for each with a revocation, whether that saw a claim."""
    program = [sys.executable, "-m", "tests.integration.backends.local.supervising"]
    orders = [
        {
            "orders": [request.fields() for request in one.requests],
            "revoke_after": one.revoke_after_microseconds,
        }
        for one in rounds
    ]
    given = json.dumps({"root": backend.client.root, "rounds": orders}).encode()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe, cwd=REPOSITORY)
    said, _ = await process.communicate(given)
    assert process.returncode == 0
    answers: list[bool | None] = json.loads(said)
    return answers


def is_running(pid: int) -> bool:
    """Is there a live process with this pid?"""
    return processes.start_ticks(pid) is not None


def pids_in(path: Path) -> list[int]:
    """The pids that a job has written, one a line."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []
