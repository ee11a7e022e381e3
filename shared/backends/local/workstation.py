"""What a supervisor does for a workstation beside what it does for every job: where it listens, who watches its use."""

from __future__ import annotations

import contextlib
import os
import socket

from shared.backends.local import environment, layout, prober
from shared.backends.local.complaints import complain
from shared.backends.local.files import write_record

# Below the ports that the kernel gives to outgoing connections, which come and go: ip(7).
_FIRST_PORT, _LAST_PORT = 20_000, 32_767
_TRIES = 100
_SECRET_BYTES = 32
_HEARTBEAT = ".tidegate-heartbeat"


class Desk:
    """One workstation's port, secret and heartbeat file."""

    def __init__(self, root: str, submission: str, port: int, secret: str, heartbeat: str) -> None:
        self.root, self.submission, self.port, self.secret, self.heartbeat = root, submission, port, secret, heartbeat

    def variables(self) -> dict[str, str]:
        """What its command is told."""
        return {
            environment.PORT: str(self.port),
            environment.SECRET: self.secret,
            environment.HEARTBEAT: self.heartbeat,
            "JUPYTER_TOKEN": self.secret,
        }


def prepare(root: str, submission: str, attempt_directory: str) -> Desk:
    """Choose a port that is free now and a secret, and put them on record before the command is up."""
    secret = os.urandom(_SECRET_BYTES).hex()
    desk = Desk(root, submission, _free_port(), secret, f"{attempt_directory}/home/{_HEARTBEAT}")
    record: dict[str, object] = {"submission": submission, "port": desk.port, "secret": secret}
    write_record(layout.record_path(root, submission, layout.ENDPOINT), record)
    return desk


def watch(desk: Desk, started_ms: int, devices: list[int]) -> None:
    """Fork who records its activity until the supervisor or the job ends. Without it the job runs all the same."""
    try:
        prober.start(desk.root, desk.submission, desk.port, desk.heartbeat, started_ms, devices)
    except OSError as error:
        complain(f"{desk.submission}: nobody watches whether it is idle: {error}")


def clear(root: str, submission: str) -> None:
    """It has ended: nobody is to be led to its port, which may be another's soon."""
    for kind in layout.WORKSTATION_KINDS:
        with contextlib.suppress(OSError):
            os.unlink(layout.record_path(root, submission, kind))


def _free_port() -> int:
    """A loopback port that nobody listens at. Until the command does, it is not kept: a random one is hardly wanted by
    another in that time."""
    for _ in range(_TRIES):
        port = _FIRST_PORT + int.from_bytes(os.urandom(4), "big") % (_LAST_PORT - _FIRST_PORT + 1)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no port from {_FIRST_PORT} to {_LAST_PORT} is free for the workstation")
