"""However a job is ended, nothing of it lives on: what ignores signals, children, daemons, sessions of their own."""

import os
import signal

import pytest

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


async def test_nothing_of_it_survives_its_time_limit(backend: Backend) -> None:
    end = await ended(backend, await stubborn(backend, "limited", time_limit_seconds=3))
    assert (end.signal, end.reason, end.stop_seen_at) == (signal.SIGKILL, "time_limit", None)
