"""Every command of docker-compose.yml as a plain process, on real servers: one job goes through to its outputs."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.binaries import find_nats, find_postgres
from infra.embedded.ports import Ports
from infra.embedded.postgres import Postgres
from infra.embedded.processes import start
from tests.compose.composed import Container, OnLoopback, in_order
from tests.patience import PATIENCE_SECONDS
from tests.servers import wait_until

TIDEGATE = Path(sys.executable).with_name("tidegate")
ANSWERS = ("api", "gatekeeper", "stager", "launcher", "watcher", "metering", "postgres", "nats", "http")
"""Whatever listens."""


class Running:
    """All containers that go on, as processes; ended in the order opposite to that of their start."""

    def __init__(self, here: OnLoopback) -> None:
        self.here = here
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._server: Postgres | None = None

    def up(self) -> None:
        """As `docker compose up` does: each once what it needs is so."""
        ordered = [container for container in in_order() if "profiles" not in container.what]
        conditions = {needed: how for container in ordered for needed, how in container.needs.items()}
        for container in ordered:
            self.processes[container.name] = process = self._start(container)
            if conditions.get(container.name) == "service_completed_successfully":
                assert process.wait(PATIENCE_SECONDS) == 0, self.log(container)
            elif conditions.get(container.name) == "service_healthy":
                self._wait_for(container)
        for container in ordered:
            if container.is_ours and "healthcheck" in container.what:
                self._wait_for(container)

    def down(self) -> None:
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if self._server is not None:
            self._server.clean()

    def log(self, container: Container) -> str:
        return (self.here.folder / f"{container.name}.log").read_text()[-3000:]

    def _wait_for(self, container: Container) -> None:
        def healthy() -> bool:
            assert self.processes[container.name].poll() is None, self.log(container)
            return self._answers(container) and (not container.is_ours or self.here.is_healthy(container))

        wait_until(healthy, f"{container.name} to be healthy", PATIENCE_SECONDS)

    def _answers(self, container: Container) -> bool:
        """Whether it listens: in place of pg_isready and nc, which are in those images and may not be here, and before
        a check of ours, which costs a start of Python."""
        if container.name not in self.here.ports:
            return True
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.here.ports[container.name])) == 0

    def _start(self, container: Container) -> subprocess.Popen[bytes]:
        match container.name:
            case "postgres":
                return self._postgres(container)
            case "nats":
                log = (self.here.folder / "nats.log").open("ab")
                words = self.here.words(container, container.command)
                with log:
                    return subprocess.Popen([find_nats(), *words], stdout=log, stderr=log)
            case _:
                return self.here.start(container)

    def _postgres(self, container: Container) -> subprocess.Popen[bytes]:
        """As the image does: the superuser's password from the file, whatever follows `postgres` for the server."""
        secret = Path(self.here.text(container, container.environment["POSTGRES_PASSWORD_FILE"])).read_text()
        server = self._server = Postgres.at(find_postgres(), self.here.folder / "data", secret)
        server.prepare()
        words = container.command
        assert words[0] == "postgres"
        settings = dict(word.split("=", 1) for word in words[1:] if word != "-c")
        loopback = {"listen_addresses": "127.0.0.1", "port": str(self.here.ports["postgres"]), "fsync": "off"}
        return start(server.process(self.here.folder / "postgres.log", **settings, **loopback))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    ports = Ports(tmp_path, {})
    running = Running(OnLoopback(tmp_path, {name: ports.some(name) for name in ANSWERS}))
    try:
        running.up()
        yield running
    finally:
        running.down()


@pytest.mark.timeout(400)  # a dozen starts of Python, where others keep the machine busy
def test_a_job_goes_through_to_its_outputs(running: Running, tmp_path: Path) -> None:
    here = running.here
    asked = [container for container in in_order() if "profiles" in container.what]
    assert [here.start(container).wait(PATIENCE_SECONDS) for container in asked] == [0, 0], (
        "the token, and the way to restore"
    )
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TIDEGATE_URL": f"http://127.0.0.1:{here.ports['http']}",
        "TIDEGATE_TOKEN": (here.folder / "token.log").read_text(),
    }
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "run.sh").write_text("echo 42 > answer\n")

    def tidegate(*words: str) -> str:
        done = subprocess.run(
            [TIDEGATE, *words], env=environ, cwd=tmp_path / "project", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tidegate("submit", "--name", "first", "--gpus", "1", "--out", "answer", "--wait", "--", "sh", "run.sh")
    assert "SUCCEEDED" in tidegate("ls")
    [job] = [word for word in tidegate("ls").split() if word.startswith("j0")]
    tidegate("outputs", "get", job, "--to", str(tmp_path / "got"))
    assert (tmp_path / "got" / "answer").read_text() == "42\n"
