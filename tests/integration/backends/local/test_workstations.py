"""A workstation has a port and a secret of its own, which nobody else sees, and somebody watches whether it is used."""

import os
import signal
import socket
import stat
from datetime import timedelta
from pathlib import Path

from shared.backends.local import layout
from shared.backends.local.activity import Activity, read_activity
from shared.backends.local.endpoint import read_endpoint
from shared.backends.local.messages import LaunchRequest
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import Backend, eventually

SERVES = """
import os, socket, pathlib
server = socket.create_server(("127.0.0.1", int(os.environ["TIDEGATE_PORT"])))
pathlib.Path(os.environ["TIDEGATE_HEARTBEAT"]).touch()
pathlib.Path("told").write_text(os.environ["TIDEGATE_SECRET"])
os.rename("told", "ready")
connections = []
while True:
    connections.append(server.accept())
"""


async def serving(backend: Backend) -> LaunchRequest:
    """A workstation that listens, has touched its heartbeat, and has written down its secret."""
    request = await backend.request("desk", "python", "s.py", files={"s.py": SERVES}, workstation=True)
    await backend.started(request)
    return request


async def test_listens_where_its_record_says_until_it_ends(backend: Backend) -> None:
    request = await serving(backend)
    endpoint = read_endpoint(backend.root, request.submission)
    assert endpoint is not None
    assert (backend.directory(request) / "ready").read_text() == endpoint.secret
    record = backend.record(request.submission, layout.ENDPOINT)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    with socket.create_connection(("127.0.0.1", endpoint.port)):
        pass
    await backend.client.stop(request.submission, 600)
    await backend.until(request.submission, LocalState.EXITED)
    found = [path for path in backend.root.rglob("*.json") if endpoint.secret in _text(path)]
    assert found == []
    assert read_endpoint(backend.root, request.submission) is None
    assert read_activity(backend.root, request.submission) is None


def _text(path: Path) -> str:
    """Of a file that may go meanwhile."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


async def test_what_its_probes_see_is_recorded_while_it_runs(backend: Backend) -> None:
    request = await serving(backend)
    endpoint = read_endpoint(backend.root, request.submission)
    assert endpoint is not None

    def activity() -> Activity | None:
        return read_activity(backend.root, request.submission)

    with socket.create_connection(("127.0.0.1", endpoint.port)):

        def connected() -> bool:
            seen = activity()
            return seen is not None and None not in (seen.probes["connections"], seen.probes["heartbeat"])

        await eventually(connected, "the connection and the heartbeat are seen")
    seen = activity()
    assert seen is not None
    assert set(seen.probes) == {"cpu", "connections", "heartbeat"}
    assert seen.broken == {}
    assert seen.last is not None
    assert seen.since <= seen.last <= seen.at + timedelta(milliseconds=1)


async def test_a_supervisor_that_was_killed_leaves_no_secret_once_it_is_released(backend: Backend) -> None:
    request = await serving(backend)
    os.kill(backend.supervisor_pid(request.submission), signal.SIGKILL)
    await backend.until(request.submission, LocalState.GONE)
    await backend.client.kill(request.submission)
    await backend.client.release(request.submission)
    assert not backend.record(request.submission, layout.ENDPOINT).exists()


async def test_a_batch_job_has_neither_port_nor_anybody_who_watches_it(backend: Backend) -> None:
    request = await backend.request("batch", "env", environment={"TIDEGATE_SECRET": "mine"})
    await backend.run(request)
    assert not [line for line in backend.output(request).splitlines() if "PORT" in line or "SECRET" in line]
    assert not backend.record(request.submission, layout.ACTIVITY).exists()
