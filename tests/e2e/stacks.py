"""An embedded stack for tests, used through the `tidegate` command as a person would."""

import json
import os
import pty
import pwd
import shutil
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.embedded.binaries import find_postgres
from infra.embedded.home import Home
from infra.embedded.nats import Nats
from infra.embedded.postgres import SUPERUSER, Postgres
from infra.embedded.processes import Account
from infra.embedded.state import State
from shared.client.client import Tidegate
from shared.client.endpoint import Endpoint
from shared.client.errors import NoServer, Unavailable
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.patience import PATIENCE_SECONDS

TIDEGATE = Path(sys.executable).with_name("tidegate")
AS_ROOT = os.geteuid() == 0
TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass
class Ended:
    """How a command ended, with what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Stack:
    """A running stack: its folder, and its command line as this user or as another tenant's (`token`)."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (str(TIDEGATE),)
    account: Account | None = None
    """Another user to be; the home has to be that user's."""

    def cli(
        self, *words: str, cwd: Path | None = None, token: str | None = None, seconds: float = 2 * PATIENCE_SECONDS
    ) -> Ended:
        """Run `tidegate WORDS`; what it printed and its exit code."""
        environ = self._environ()
        if token is not None:
            environ["TIDEGATE_TOKEN"] = token
        child = self._start(words, environ, cwd)
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise
        return Ended(child.returncode, out, err)

    def on_a_terminal(self, *words: str) -> str:
        """Run `tidegate WORDS` on a terminal of 80 columns; what it showed."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        environ = self._environ() | {"TERM": "dumb"}
        child = subprocess.Popen([*self.command, *words], env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # EIO: the command has ended
            while data := screen.read(65536):
                shown += data
        child.wait(PATIENCE_SECONDS)
        return shown.decode()

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run `tidegate WORDS` and leave it running; its output is the caller's to read."""
        return self._start(words, self._environ(), None)

    def _environ(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "TIDEGATE_HOME": str(self.home)} | self.environ

    def _start(self, words: Sequence[str], environ: dict[str, str], cwd: Path | None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *words],
            env=environ,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=self.account.uid if self.account else None,
            group=self.account.gid if self.account else None,
            extra_groups=[] if self.account else None,
        )

    def up(self, *options: str) -> None:
        """Start it, and return once every service answers."""
        ended = self.cli("up", "--detach", *options)
        if ended.code != 0:
            self.cli("down", "--kill-jobs")  # it would go on trying when the tests have ended
        assert ended.code == 0, f"the stack did not start: {ended.out}{ended.err}"

    def down(self) -> None:
        ended = self.cli("down", "--kill-jobs")
        assert ended.code == 0, f"the stack did not stop: {ended.out}{ended.err}"

    @property
    def endpoint(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "endpoint.json").read_text()))

    def client(self, token: str | None = None, *, admin: bool = False) -> Tidegate:
        """The Python client of this stack."""
        known = self.endpoint
        endpoint = Endpoint(known["url"], token or known["token"], known["admin_token"], "test")
        return Tidegate(endpoint, admin=admin, timeout_seconds=PATIENCE_SECONDS)

    def submit(self, *words: str, cwd: Path | None = None, token: str | None = None) -> dict[str, Any]:
        """`tidegate submit --wait --json WORDS`: the finished job's object, however it ended."""
        ended = self.cli("submit", "--wait", "--json", *words, cwd=cwd, token=token)
        assert ended.code in (0, 1), f"submit ended with {ended.code}: {ended.err}"
        return dict(ended.json)

    def refused(self, *words: str) -> str:
        """Why `tidegate submit WORDS` is refused at once. A job that nobody could check in time says so, and is asked
        for again."""
        while (ended := self.cli(words[0], "--json", *words[1:])).code == 0:
            assert "could not be checked at submit" in str(ended.json["warnings"]), ended.out
            self.cli("stop", "--force", ended.json["id"])
        assert ended.code == 3, ended.err
        return ended.err

    def run(self, *command: str, options: Sequence[str] = (), token: str | None = None) -> dict[str, Any]:
        """A job without a working directory, waited for: through the command line where it has options, else as a
        program that asks again, with the same key, where it got no answer."""
        if options:
            return self.submit("--no-snapshot", *options, "--", *command, token=token)
        key, asked = uuid.uuid4().hex, SubmitRequest(spec=JobSpec(command=command))
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.client(token) as client:
            while True:
                try:
                    job = client.wait(client.submit(asked, idempotency_key=key).id)
                    return dict(client.call("GET", f"/v1/jobs/{job.id}"))
                except (NoServer, Unavailable):
                    assert time.monotonic() < deadline, "nobody answers"
                    time.sleep(0.05)

    def log(self, job: dict[str, Any], stream: str = "stdout", *, token: str | None = None) -> str:
        """What a job has written."""
        with self.client(token) as client:
            return b"".join(client.logs(job["id"], stream=stream)).decode()

    def processes(self) -> dict[str, dict[str, Any]]:
        """`tidegate ps --json`, by name."""
        return {row["name"]: row for row in self.cli("ps", "--json").json}

    @contextmanager
    def server_down(self, name: str, number: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """`postgres` or `nats` is ended by a signal, and stays away while the block runs.

        Its supervisor, which would start it again at once, is stopped for as long.
        """
        state = State.read(Home(self.home))
        assert state is not None
        server = next(entry.identity for entry in state.processes if entry.name == name)
        assert server is not None, f"{name} does not run"
        assert state.supervisor.send(signal.SIGSTOP)
        try:
            assert server.send(number)
            assert server.gone_within(PATIENCE_SECONDS)
            yield
        finally:
            state.supervisor.send(signal.SIGCONT)

    def copy_nats_store(self, copy: Path) -> None:
        """The broker's store as of one moment: the server stands still meanwhile."""
        server = self.processes()["nats"]["pid"]
        os.kill(server, signal.SIGSTOP)
        try:
            shutil.copytree(self._nats_store, copy)
        finally:
            os.kill(server, signal.SIGCONT)

    def replace_nats_store(self, copy: Path | None) -> None:
        """Kill nats-server; what it finds when it is started again is an older copy of its store, or (None) nothing."""
        with self.server_down("nats"):
            shutil.rmtree(self._nats_store)
            if copy is not None:
                shutil.copytree(copy, self._nats_store)

    @property
    def _nats_store(self) -> Path:
        return Nats(Path(), Home(self.home).nats, 0).store


def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; a test that waits in vain says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def processes_with(marker: str) -> list[int]:
    """The processes that hold `marker` in their command line (each test uses one of its own)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended while we looked
    return found


def superuser_url(stack: Stack) -> str:
    """The address of a stack's database as its superuser, which only tests and the bench are."""
    home = Home(stack.home)
    password = home.secret(f"{SUPERUSER}.postgres.password")
    return Postgres.at(find_postgres(), home.postgres, password).superuser_url()


def unprivileged_user() -> pwd.struct_passwd:
    """A user other than root that every Debian has."""
    return pwd.getpwnam("games")


def stage_of(job: dict[str, Any], name: str) -> dict[str, Any]:
    """One of a job's five stages."""
    return dict(next(stage for stage in job["stages"] if stage["name"] == name))
