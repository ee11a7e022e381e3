"""Stop through the command line: nothing of a job survives it, in whatever state it is asked for."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.home import Home
from infra.embedded.state import State
from shared.client.client import Tidegate
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.e2e.stacks import Stack, eventually, processes_with

BY_WHOM = r"stopped: by \S+ at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
# Whatever it starts ignores SIGTERM as it does: a child, a grandchild in a session of its own, and a daemon, whose
# parents are gone.
STUBBORN = """
trap '' TERM
sleep MARKER &
setsid sh -c 'sleep MARKER & wait' &
setsid sh -c 'setsid sleep MARKER &' &
echo so far > out.txt
echo up
while :; do sleep MARKER; done
"""


@pytest.fixture
def marker() -> str:
    """Seconds to sleep for, which no other process sleeps for."""
    return f"86400.{time.time_ns()}"


@pytest.mark.parametrize("how", [("--grace", "1s"), ("--force",)], ids=["killed after its grace", "by force"])
def test_nothing_of_a_job_that_ignores_its_signal_survives(
    stack: Stack, tmp_path: Path, marker: str, how: tuple[str, ...]
) -> None:
    script = STUBBORN.replace("MARKER", marker)
    with stack.client() as client:
        job = client.submit(_asked("sh", "-c", script, gpus=1, outputs=("out.txt",))).id
        eventually(lambda: _is_up(client, job) and len(processes_with(f"sleep\0{marker}")) >= 4, "all of it to be up")
    stopped = stack.cli("stop", job, *how, "--wait", "--json")
    assert stopped.code in (0, 1), stopped.err
    view: dict[str, Any] = stopped.json
    assert processes_with(marker) == []
    assert (view["state"], view["end_reason"], view["exit"]["signal"]) == ("STOPPED", "stopped_by_user", signal.SIGKILL)
    assert re.fullmatch(BY_WHOM, view["message"])
    assert (view["holds_gpus"], view["occupies_slot"]) == (False, False)
    assert stack.cli("outputs", "get", job, "--to", str(tmp_path)).code == 0
    assert (tmp_path / "out.txt").read_text() == "so far\n"


def _asked(*command: str, **spec: Any) -> SubmitRequest:
    return SubmitRequest(spec=JobSpec(command=command, **spec))


def _is_up(client: Tidegate, job: str) -> bool:
    """Its command has said so."""
    return b"up" in b"".join(client.logs(job))


@contextmanager
def _standing_still(stack: Stack, service: str) -> Iterator[None]:
    """A service says nothing while the block runs."""
    state = State.read(Home(stack.home))
    assert state is not None
    process = next(entry.identity for entry in state.processes if entry.name == service)
    assert process is not None
    assert process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


@pytest.mark.parametrize(
    ("state", "waits_for"),
    [("QUEUED", None), ("SUBMITTED", "stager"), ("PENDING", "watcher"), ("RUNNING", None), ("PAUSED", None)],
)
def test_a_job_is_stopped_in_every_state(stack: Stack, marker: str, state: str, waits_for: str | None) -> None:
    with stack.client() as client:

        def submitted(gpus: int) -> str:
            return client.submit(_asked("sleep", marker, gpus=gpus)).id

        def stopped(job: str) -> None:
            eventually(lambda: client.job(job).state == state, f"the job to be {state}")
            client.command(job, "stop")

        if state == "QUEUED":
            holds, job = submitted(1), submitted(8)
            eventually(lambda: client.job(holds).state == "RUNNING", "another to hold a GPU")
            stopped(job)
            client.command(holds, "stop", {"force": True})
            client.wait(holds)
        elif waits_for is not None:
            with _standing_still(stack, waits_for):
                job = submitted(1)
                stopped(job)
        else:
            job = submitted(1)
            if state == "PAUSED":
                eventually(lambda: client.job(job).state == "RUNNING", "the job to run")
                client.command(job, "pause")
            stopped(job)
        ended = client.wait(job)
        assert (ended.state, ended.end_reason) == ("STOPPED", "stopped_by_user")
        assert re.fullmatch(BY_WHOM, ended.message or "")
        assert processes_with(marker) == []
        assert ended.actions["stop"].why_not is not None
