"""The real servers that tests run against, made of the embedded stack's own parts."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.embedded.binaries import find_nats, find_postgres
from infra.embedded.home import Home
from infra.embedded.nats import Nats
from infra.embedded.ports import Ports
from infra.embedded.postgres import SUPERUSER, Postgres
from infra.embedded.probes import why_not_ready
from infra.embedded.processes import Process, start
from infra.nats.permissions import ADMIN
from shared.contracts.subjects import SERVICES
from tests.patience import PATIENCE_SECONDS


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; a test that waits in vain says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


@dataclass
class Server:
    """One process that a test may stop, kill and start again; its data stays."""

    process: Process
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.process.name} is not running"
        return self._child.pid

    def start(self) -> None:
        """Start it and return once it answers."""
        self._child = start(self.process)
        address = self.process.ready
        assert address is not None
        try:
            wait_until(lambda: why_not_ready(address) is None, f"{self.process.name} to answer")
        except AssertionError as error:
            raise AssertionError(f"{error}; its log: {self.process.log.read_text()[-2000:]}") from None

    def stop(self) -> None:
        """Ask it to end and wait; nothing to do where it has ended."""
        self._signal(self.process.stop_signal)

    def kill(self) -> None:
        """As a crash does."""
        self._signal(signal.SIGKILL)

    def forget(self) -> None:
        """Leave it running, as a starter that crashed does."""
        child, self._child = self._child, None
        assert child is not None
        threading.Thread(target=child.wait, daemon=True).start()  # what has ended must not stay a zombie

    def _signal(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        self._child.send_signal(number)
        try:
            self._child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None


class PostgresServer(Server):
    """PostgreSQL without fsync: no test cuts the power, and a start takes half the time."""

    def __init__(self, folder: Path) -> None:
        self._home = Home(folder)
        self._home.make()
        self.postgres = Postgres.at(find_postgres(), self._home.postgres, self.password(SUPERUSER))
        super().__init__(self.postgres.process(self._home.log("postgres"), fsync="off"))

    def start(self) -> None:
        self.postgres.prepare()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.postgres.clean()

    def password(self, role: str) -> str:
        """Of the superuser, a service's login or its owner, by the role's name."""
        return self._home.secret(f"{role}.postgres.password")

    def superuser_url(self, database: str = "postgres") -> str:
        return self.postgres.superuser_url(database)


class NatsServer(Server):
    """nats-server with JetStream in a folder of its own and the product's users and permissions."""

    def __init__(self, folder: Path) -> None:
        home = Home(folder)
        home.make()
        self._home = home
        self._ports = Ports(home.root, {})
        self.nats = Nats(find_nats(), home.nats, self._ports.some("nats"))
        super().__init__(self.nats.process(home.log("nats")))

    def start(self) -> None:
        self.nats.configure({user: self.password(user) for user in (ADMIN, *SERVICES)})
        super().start()

    @property
    def url(self) -> str:
        """The address, without a login."""
        return self.nats.url

    @property
    def store(self) -> Path:
        """Where its streams lie."""
        return self.nats.store

    def password(self, user: str) -> str:
        """Of `admin`, or of a service by its name."""
        return self._home.secret(f"{user}.nats.password")

    def login(self, user: str) -> dict[str, str]:
        """The arguments `user`, `password` and `inbox_prefix` of `nats.connect` for a user."""
        return {"user": user, "password": self.password(user), "inbox_prefix": f"_INBOX_{user}"}
