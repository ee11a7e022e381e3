"""However a job is ended, nothing of it lives on: what ignores signals, children, daemons, sessions of their own."""

import os
import signal
import sys

import pytest

from shared.backends.local import sweeping
from shared.backends.local.messages import KillKind
from shared.backends.local.observer import LocalState
from shared.backends.local.records import ExitRecord
from tests.integration.backends.local.harness import Backend, pids_in

STUBBORN = """
trap '' TERM INT HUP USR1 USR2
LOOP='echo $$ >> pids; while :; do sleep 0.05; done'
sh -c "$LOOP" &
setsid sh -c "$LOOP" &
(setsid sh -c "setsid sh -c '$LOOP' & exit 0" &)
while [ "$(wc -l < pids)" != 3 ]; do sleep 0.02; done
touch ready
while :; do sleep 0.05; done
"""
"""It has a child, one in a session of its own, and a daemon forked twice; all of them ignore what they are told."""

CHAINS = """
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork(): os._exit(0)
            os.setsid()
open("ready", "w")
time.sleep(1e6)
"""
"""Ignores everything, and keeps four chains of processes that live only until they have forked the next one."""


async def stubborn(backend: Backend, job: str, *, time_limit_seconds: int | None = None) -> str:
    """Its submission, once everything of it is up; under a time limit at once."""
    files = {"s.sh": STUBBORN, "pids": ""}
    request = await backend.request(
        job, "sh", "s.sh", files=files, time_limit_seconds=time_limit_seconds, stop_grace_seconds=0.1
    )
    if time_limit_seconds is not None:
        return await backend.submit(request)
    await backend.started(request)
    assert len(pids_in(backend.directory(request) / "pids")) == 3
    return request.submission


async def ended(backend: Backend, submission: str) -> ExitRecord:
    """The record of its end, after which nothing of it is left."""
    end = (await backend.until(submission, LocalState.EXITED)).exit
    assert end is not None
    assert marked(submission) == []
    return end


def marked(submission: str) -> list[str]:
    """Every process that was started for this submission, by its environment, which is inherited."""
    wanted = f"TIDEGATE_SUBMISSION={submission}\0".encode()
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and wanted in _environment(pid)]


def _environment(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("grace_seconds", "number", "pausing"),
    [
        pytest.param(0.2, signal.SIGTERM, False, id="stopped"),
        pytest.param(0.2, signal.SIGUSR1, True, id="paused"),
        pytest.param(0, signal.SIGTERM, False, id="by force"),
    ],
)
async def test_nothing_of_it_survives_its_end(
    backend: Backend, grace_seconds: float, number: int, pausing: bool
) -> None:
    submission = await stubborn(backend, "stubborn")
    assert len(marked(submission)) >= 4, "the mark finds them"
    await backend.client.stop(submission, grace_seconds, number, pausing=pausing)
    end = await ended(backend, submission)
    assert (end.signal, end.reason) == (signal.SIGKILL, None)
    assert end.stop_seen_at is not None


async def test_who_forks_faster_than_all_processes_can_be_listed_is_ended_by_its_supervisor(backend: Backend) -> None:
    request = await backend.request("chains", sys.executable, "chains.py", files={"chains.py": CHAINS})
    await backend.started(request)
    await backend.client.stop(request.submission, 0.2, pausing=True)
    end = await ended(backend, request.submission)
    assert (end.signal, end.reason, end.sentence) == (signal.SIGKILL, None, None)
    assert end.stop_seen_at is not None
    assert sweeping.sweep(request.submission, None) == 0


async def test_who_outlives_a_dead_supervisor_by_forking_is_ended_from_outside(backend: Backend) -> None:
    request = await backend.request("orphans", sys.executable, "chains.py", files={"chains.py": CHAINS})
    await backend.started(request)
    os.kill(backend.supervisor_pid(request.submission), signal.SIGSTOP)
    while (answer := await backend.client.kill(request.submission, timeout_seconds=2)).kind is KillKind.UNCLEAR:
        pass
    assert answer.exit is not None
    assert answer.exit.stop_seen_at is not None
    assert sweeping.sweep(request.submission, None) == 0


async def test_nothing_of_it_survives_its_time_limit(backend: Backend) -> None:
    end = await ended(backend, await stubborn(backend, "limited", time_limit_seconds=3))
    assert (end.signal, end.reason, end.stop_seen_at) == (signal.SIGKILL, "time_limit", None)
